// Python's lock, given up while a thread is in the core.
#pragma once

#include <Python.h>
#include <unistd.h>

namespace hvdtune::bindings {

// As py::gil_scoped_release, but safe for a thread that is still in the core when the interpreter
// ends: until Python 3.14 such a thread is ended by unwinding its stack as soon as it asks for the
// lock, and a destructor that is unwound ends the process by SIGABRT. It sleeps for ever instead,
// as it does from Python 3.14 on, and ends with the process.
class GilRelease {
 public:
  GilRelease() : state_(PyEval_SaveThread()) {}
  ~GilRelease() {
    try {
      PyEval_RestoreThread(state_);
    } catch (...) {  // of pthread_exit, the only thing that comes out of Python
      for (;;) pause();
    }
  }
  GilRelease(const GilRelease&) = delete;
  GilRelease& operator=(const GilRelease&) = delete;

 private:
  PyThreadState* const state_;
};

}  // namespace hvdtune::bindings
