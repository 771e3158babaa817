// include/fake_gpu.h
#include <stdexcept>

#include "../engine/engine.h"
#include "../engine/faults.h"
#include "../engine/violations.h"
#include "../include/fake_gpu.h"
#include "modules.h"

using namespace fake_gpu;

extern "C" {

int fakeGpuSetFaults(const char* faults) {
  try {
    set_faults(faults == nullptr ? "" : faults);
    return 0;
  } catch (const std::invalid_argument& error) {
    note("fakeGpuSetFaults: " + std::string(error.what()));
    return -1;
  }
}

uint64_t fakeGpuFaultsHit(const char* kind) { return faults_hit(kind); }
uint64_t fakeGpuViolations(const char* kind) { return violations_of(kind == nullptr ? "" : kind); }
const char* fakeGpuLastViolation() { return last_violation(); }

void fakeGpuReset() {
  forget_violations();
  forget_faults();
}

void fakeGpuRelease() {
  release();
  const std::lock_guard lock(engine().mutex);
  engine().changed.notify_all();
}

void* fakeGpuPeek(uint64_t device_pointer) {
  return is_device_address(device_pointer) ? host_address(device_pointer) : nullptr;
}

void fakeGpuPause(int paused) {
  const std::lock_guard lock(engine().mutex);
  engine().paused = paused != 0;
  engine().changed.notify_all();
}

uint64_t fakeGpuAllocatedBytes(int device) {
  const std::lock_guard lock(engine().mutex);
  const auto& contexts = engine().contexts;
  if (device < 0 || static_cast<size_t>(device) >= contexts.size()) return 0;
  return contexts[device]->allocated_bytes;
}

int fakeGpuStreamCount() {
  const std::lock_guard lock(engine().mutex);
  return static_cast<int>(engine().streams.size());
}

void fakeGpuRegisterKernel(const FakeGpuKernel* kernel) { register_kernel(kernel); }
}
