#include "timeline/file.h"

#include <fcntl.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <utility>

#include "base/status.h"
#include "timeline/crc32.h"

namespace hvdtune {
namespace {

constexpr std::string_view kMagic = "HVDTRACE";
constexpr std::string_view kSync = "HVDB";
constexpr uint32_t kVersion = 1;
constexpr size_t kCarriedClocks = 64;
constexpr uint64_t kFooterBytes = 256;  // more than drops, full and end need together

template <typename T>
std::string_view bytes_of(const T& value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

std::string_view bytes_of(std::span<const Record> records) {
  return {reinterpret_cast<const char*>(records.data()), records.size_bytes()};
}

template <typename T>
void put(std::string& out, T value) {
  out.append(bytes_of(value));
}

void put_text(std::string& out, uint32_t id, std::string_view text) {
  const std::string_view cut = text.substr(0, TraceFile::kMaxNameBytes);
  put(out, id);
  put(out, static_cast<uint32_t>(cut.size()));
  out += cut;
}

std::string segment_header(uint32_t segment, uint64_t recording) {
  std::string header(kMagic);
  put(header, kVersion);
  put(header, segment);
  put(header, recording);
  put(header, static_cast<uint32_t>(sizeof(Record)));
  put(header, crc32(header));
  return header;
}

}  // namespace

TraceFile::TraceFile(TraceFileOptions options) : options_(std::move(options)) {
  unlink((options_.path + ".1").c_str());  // an older recording's
  if (!open_segment(0)) {
    if (fd_ >= 0) close(fd_);
    throw Error(ErrorCode::kUsage, error_);
  }
}

TraceFile::~TraceFile() { close(fd_); }

bool TraceFile::fail(const std::string& what, int error_number) {
  if (error_.empty()) error_ = system_message(what, error_number);
  return false;
}

// Leaves fd_ as it is when the file cannot be opened.
bool TraceFile::open_segment(uint32_t segment) {
  const std::string path = segment % 2 == 0 ? options_.path : options_.path + ".1";
  // Another user may have put a link there.
  constexpr int kFlags = O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC;
  const int fd = open(path.c_str(), kFlags, 0644);
  if (fd < 0) return fail("cannot write the timeline " + path, errno);
  if (fd_ >= 0) close(fd_);
  fd_ = fd;
  segment_ = segment;
  segment_bytes_ = 0;
  segment_has_records_ = false;
  seen_.clear();
  segment_begun_ = write_preamble();
  return segment_begun_;
}

bool TraceFile::write_preamble() {
  if (!write_all({segment_header(segment_, options_.recording)})) return false;
  if (!write_block(BlockType::kMetadata, options_.metadata)) return false;

  std::vector<Record> carried(carried_clocks_.begin(), carried_clocks_.end());
  if (carried_setting_) carried.push_back(*carried_setting_);
  if (carried.empty()) return true;
  if (!write_texts(unseen_texts(carried))) return false;
  mark_seen(carried);
  return write_block(BlockType::kCarried, bytes_of(std::span<const Record>(carried)));
}

size_t TraceFile::append(std::span<const Record> records) {
  size_t written = 0;
  while (written < records.size()) {
    const auto block = records.subspan(written, std::min(kBlockRecords, records.size() - written));
    if (!append_block(block)) break;
    written += block.size();
  }
  records_written_ += written;
  return written;
}

bool TraceFile::append_block(std::span<const Record> records) {
  if (full_) return false;
  // A full disk may have kept a new segment from getting its preamble.
  if (!segment_begun_ && !open_segment(segment_)) return false;
  BlockTexts texts = unseen_texts(records);
  if (would_overflow(texts.size() + records.size_bytes())) {
    full_ = options_.when_full == WhenFull::kStop;
    if (full_ || !open_segment(segment_ + 1)) return false;
    texts = unseen_texts(records);
  }
  if (!write_texts(texts)) return false;
  mark_seen(records);
  if (!write_block(BlockType::kRecords, bytes_of(records))) return false;
  segment_has_records_ = true;
  carry(records);
  return true;
}

bool TraceFile::would_overflow(uint64_t more) const {
  if (options_.max_bytes == 0) return false;
  if (options_.when_full == WhenFull::kStop) {
    return segment_bytes_ + more + kFooterBytes > options_.max_bytes;
  }
  return segment_has_records_ && segment_bytes_ + more > options_.max_bytes / 2;
}

void TraceFile::note_drops(uint64_t dropped) {
  if (segment_begun_ && !full_) write_block(BlockType::kDrops, bytes_of(dropped));
}

void TraceFile::finish(uint64_t dropped) {
  if (!segment_begun_) return;
  if (full_) write_block(BlockType::kFull, bytes_of(options_.max_bytes));
  std::string counts;
  put(counts, dropped);
  put(counts, records_written_);
  write_block(BlockType::kEnd, counts);
}

TraceFile::BlockTexts TraceFile::unseen_texts(std::span<const Record> records) const {
  BlockTexts texts;
  std::vector<bool> added;
  for (const Record& record : records) {
    const uint32_t id = record.name;
    if (id == 0 || (id < seen_.size() && seen_[id]) || (id < added.size() && added[id])) continue;
    if (id >= added.size()) added.resize(id + 1);
    added[id] = true;
    put_text(texts.names, id, options_.name_of(id));
    const std::string detail = options_.detail_of ? options_.detail_of(id) : std::string();
    if (!detail.empty()) put_text(texts.details, id, detail);
  }
  return texts;
}

bool TraceFile::write_texts(const BlockTexts& texts) {
  if (!texts.names.empty() && !write_block(BlockType::kNames, texts.names)) return false;
  return texts.details.empty() || write_block(BlockType::kDetails, texts.details);
}

void TraceFile::mark_seen(std::span<const Record> records) {
  for (const Record& record : records) {
    if (record.name >= seen_.size()) seen_.resize(record.name + 1);
    seen_[record.name] = true;
  }
}

void TraceFile::carry(std::span<const Record> records) {
  for (const Record& record : records) {
    if (record.kind() == EventKind::kKnobAdopted) carried_setting_ = record;
    if (record.kind() != EventKind::kClock) continue;
    carried_clocks_.push_back(record);
    if (carried_clocks_.size() > kCarriedClocks) carried_clocks_.pop_front();
  }
}

bool TraceFile::write_block(BlockType type, std::string_view payload) {
  std::string head;
  put(head, static_cast<uint32_t>(type));
  put(head, static_cast<uint32_t>(payload.size()));
  const uint32_t crc = crc32(payload, crc32(head));
  return write_all({kSync, head, bytes_of(crc), payload});
}

bool TraceFile::write_all(std::initializer_list<std::string_view> parts) {
  std::array<iovec, 4> pieces{};
  size_t count = 0;
  uint64_t left = 0;
  for (std::string_view part : parts) {
    pieces[count++] = {const_cast<char*>(part.data()), part.size()};
    left += part.size();
  }
  uint64_t at = segment_bytes_;
  iovec* next = pieces.data();
  while (left > 0) {
    const ssize_t wrote =
        pwritev(fd_, next, static_cast<int>(pieces.data() + count - next), static_cast<off_t>(at));
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) {
      const int error_number = wrote < 0 ? errno : ENOSPC;
      // Half a block would hide what follows it. If this fails too, readers look for "HVDB".
      [[maybe_unused]] const int cut = ftruncate(fd_, static_cast<off_t>(segment_bytes_));
      return fail("cannot write the timeline " + options_.path, error_number);
    }
    at += static_cast<uint64_t>(wrote);
    left -= static_cast<uint64_t>(wrote);
    auto taken = static_cast<size_t>(wrote);
    for (; taken > 0 && taken >= next->iov_len; ++next) taken -= next->iov_len;
    if (taken == 0) continue;
    next->iov_base = static_cast<char*>(next->iov_base) + taken;
    next->iov_len -= taken;
  }
  segment_bytes_ = at;
  return true;
}

}  // namespace hvdtune
