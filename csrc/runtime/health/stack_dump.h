// The Python stack of the main thread, from a thread that never takes Python's lock.
#pragma once

#include <string>

namespace hvdtune {

// Python has asked faulthandler to write the stack of the thread that gets `signal` to the file
// `fd`, which nobody else uses. fd -1: there is no Python.
struct StackSource {
  int signal = 0;
  int fd = -1;
};

// Works whatever the main thread does, C code that holds Python's lock included, unless it is
// inside the kernel and cannot be interrupted.
//
// Thread rule: one thread.
class StackDump {
 public:
  explicit StackDump(StackSource source) : source_(source) {}

  // Asks for the stack, which takes some milliseconds: complete() tells.
  void begin();
  bool complete();
  // The innermost calls, a line each. Empty if nothing was written.
  std::string text() const;

 private:
  StackSource source_;
  long seen_bytes_ = 0;
};

}  // namespace hvdtune
