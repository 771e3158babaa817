// Reads timeline files the straightforward way, for tests.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "check.h"
#include "timeline/crc32.h"
#include "timeline/event.h"

namespace hvdtune::testing {

struct ReadSegment {
  uint32_t segment = 0;
  uint64_t recording = 0;
  std::string metadata;
  std::map<uint32_t, std::string> names;
  std::map<uint32_t, std::string> details;
  std::vector<Record> records;
  std::vector<Record> carried;
  uint64_t dropped = 0;
  bool ended = false;
  uint64_t end_records = 0;
  uint64_t full_at = 0;
};

inline std::string read_bytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

template <typename T>
T number_at(const std::string& data, size_t at) {
  T value{};
  CHECK(at + sizeof value <= data.size());
  std::memcpy(&value, data.data() + at, sizeof value);
  return value;
}

inline std::vector<Record> records_in(const std::string& payload) {
  std::vector<Record> records(payload.size() / sizeof(Record));
  if (!records.empty()) {
    std::memcpy(records.data(), payload.data(), records.size() * sizeof(Record));
  }
  return records;
}

inline void add_names(const std::string& payload, std::map<uint32_t, std::string>& names) {
  for (size_t at = 0; at < payload.size();) {
    const auto size = number_at<uint32_t>(payload, at + 4);
    names[number_at<uint32_t>(payload, at)] = payload.substr(at + 8, size);
    at += 8 + size;
  }
}

// Checks what the format promises; a last block that is not whole is left out.
inline ReadSegment read_segment(const std::string& path) {
  const std::string data = read_bytes(path);
  CHECK(data.starts_with("HVDTRACE"));
  CHECK_EQ(number_at<uint32_t>(data, 28), crc32(data.substr(0, 28)));
  ReadSegment read;
  read.segment = number_at<uint32_t>(data, 12);
  read.recording = number_at<uint64_t>(data, 16);
  for (size_t at = 32; at + 16 <= data.size();) {
    CHECK_EQ(data.substr(at, 4), "HVDB");
    const auto type = number_at<uint32_t>(data, at + 4);
    const auto size = number_at<uint32_t>(data, at + 8);
    if (at + 16 + size > data.size()) break;
    const std::string payload = data.substr(at + 16, size);
    CHECK_EQ(number_at<uint32_t>(data, at + 12), crc32(data.substr(at + 4, 8) + payload));
    CHECK((at == 32) == (type == 1));
    CHECK(!read.ended);
    const std::vector<Record> records = records_in(payload);
    if (type == 1) read.metadata = payload;
    if (type == 2) add_names(payload, read.names);
    if (type == 7) add_names(payload, read.details);
    if (type == 8) read.full_at = number_at<uint64_t>(payload, 0);
    if (type == 3) read.records.insert(read.records.end(), records.begin(), records.end());
    if (type == 4) read.carried = records;
    if (type == 5 || type == 6) read.dropped = number_at<uint64_t>(payload, 0);
    if (type == 6) read.ended = true;
    if (type == 6) read.end_records = number_at<uint64_t>(payload, 8);
    at += 16 + size;
  }
  return read;
}

// A path that exists for one test's life.
class ScratchFile {
 public:
  explicit ScratchFile(const std::string& name)
      : path_("/tmp/hvdtune-test-" + std::to_string(getpid()) + "-" + name) {}
  ~ScratchFile() {
    unlink(path_.c_str());
    unlink((path_ + ".1").c_str());
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// Whoever opens the file for writing waits until the lease is given up: to the writer, a disk that
// has stalled.
class Stall {
 public:
  explicit Stall(const std::string& path) : fd_(open(path.c_str(), O_RDWR | O_CREAT, 0644)) {
    std::signal(SIGIO, SIG_IGN);  // the kernel's request to give it up
    works_ = fcntl(fd_, F_SETLEASE, F_WRLCK) == 0;
  }
  ~Stall() { close(fd_); }
  bool works() const { return works_; }
  bool is_felt() const { return fcntl(fd_, F_GETLEASE) != F_WRLCK; }

 private:
  int fd_;
  bool works_ = false;
};

}  // namespace hvdtune::testing
