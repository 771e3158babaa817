// The file one rank's timeline is written to. All numbers are little endian.
//
//   segment   := header block*
//   header    := "HVDTRACE" | u32 version = 1 | u32 segment | u64 recording | u32 record bytes = 32
//                | u32 crc of the 28 bytes before
//   block     := u32 "HVDB" | u32 type | u32 payload bytes | u32 crc of type, payload bytes,
//   payload
//                | payload
//   payload   := metadata (1)  JSON object, UTF-8; the first block of every segment
//              | names (2)     (u32 id | u32 bytes | UTF-8 text)*
//              | records (3)   Record*, see event.h
//              | carried (4)   Record*, repeated from segments that are gone or about to go
//              | drops (5)     u64 records dropped so far
//              | end (6)       u64 records dropped | u64 records written; the last block
//              | details (7)   as names: what a name stands for, for a tensor its dtype and shape,
//                              as in "float32[64,3,7,7]", for a group those of all
//              | full (8)      u64 max bytes; recording stopped there
//
// A reader passes over types that it does not know.
//
// crc is CRC-32 as in zlib. A block goes out in one system call and nothing in it is changed
// later, so whenever the process is killed, the file is readable up to its last whole block.
// A reader skips a block with a wrong crc by looking for the next "HVDB".
//
// With a cap on size, recording stops there, or segments alternate between PATH (even ones) and
// PATH.1 (odd ones), each holding at most half of the cap; the recording number tells which files
// belong together. Every segment stands alone: it has the metadata, every name its records use, and
// as carried records the newest setting adopted and the newest clock measurements.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "timeline/event.h"

namespace hvdtune {

enum class WhenFull : uint8_t {
  kRing,  // the oldest records go
  kStop,  // the newest are not taken
};

struct TraceFileOptions {
  std::string path = {};
  uint64_t max_bytes = 0;  // 0 = no cap
  WhenFull when_full = WhenFull::kRing;
  std::string metadata = {};
  uint64_t recording = 0;  // differs from that of any file this one might be taken for
  std::function<std::string(uint32_t)> name_of;         // text of a name id
  std::function<std::string(uint32_t)> detail_of = {};  // what it stands for, "" if unknown
};

// Thread rule: one thread at a time.
class TraceFile {
 public:
  static constexpr size_t kBlockRecords = 4096;
  static constexpr size_t kMaxNameBytes = 65536;  // longer names are cut

  // Throws Error(kUsage) naming the path when it cannot be written.
  explicit TraceFile(TraceFileOptions options);
  ~TraceFile();
  TraceFile(const TraceFile&) = delete;
  TraceFile& operator=(const TraceFile&) = delete;

  // Returns how many were written. Fewer than given: see error(); later calls try again.
  size_t append(std::span<const Record> records);
  void note_drops(uint64_t dropped);
  void finish(uint64_t dropped);
  // With kStop: the cap is reached, nothing more is written but the end.
  bool is_full() const { return full_; }

  // The first failure, "" if there was none.
  const std::string& error() const { return error_; }

 private:
  enum class BlockType : uint32_t {
    kMetadata = 1,
    kNames = 2,
    kRecords = 3,
    kCarried = 4,
    kDrops = 5,
    kEnd = 6,
    kDetails = 7,
    kFull = 8
  };
  // The texts of names that this segment does not have yet.
  struct BlockTexts {
    std::string names;
    std::string details;
    size_t size() const { return names.size() + details.size(); }
  };

  bool append_block(std::span<const Record> records);
  bool open_segment(uint32_t segment);
  bool write_preamble();
  bool write_block(BlockType type, std::string_view payload);
  bool write_all(std::initializer_list<std::string_view> parts);
  bool would_overflow(uint64_t more) const;
  BlockTexts unseen_texts(std::span<const Record> records) const;
  bool write_texts(const BlockTexts& texts);
  void mark_seen(std::span<const Record> records);
  void carry(std::span<const Record> records);
  bool fail(const std::string& what, int error_number);

  TraceFileOptions options_;
  int fd_ = -1;
  uint32_t segment_ = 0;
  uint64_t segment_bytes_ = 0;  // whole blocks only
  bool segment_begun_ = false;  // has header, metadata and carried records
  bool segment_has_records_ = false;
  bool full_ = false;
  std::vector<bool> seen_;  // by name id: this segment has it
  uint64_t records_written_ = 0;
  std::optional<Record> carried_setting_;
  std::deque<Record> carried_clocks_;
  std::string error_;
};

}  // namespace hvdtune
