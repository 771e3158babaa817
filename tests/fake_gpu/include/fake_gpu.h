// What a test says to the fake GPU and asks it. Everything here is exported by the fake
// libcuda.so.1 (dlsym finds it where a program loads that library by itself). README.md has the
// faults, the checks and the environment variables.
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// Replaces the faults: "KIND KEY=VALUE ...; KIND ...". Returns 0, or -1 with a sentence on stderr.
int fakeGpuSetFaults(const char* faults);
// How many faults of that kind have struck so far.
uint64_t fakeGpuFaultsHit(const char* kind);

// How many violations of that kind were found; of all kinds with NULL or "".
uint64_t fakeGpuViolations(const char* kind);
// The sentence about the last one, or "". Valid until the next.
const char* fakeGpuLastViolation(void);
// Forgets violations, faults and how often they struck.
void fakeGpuReset(void);
// Ends everything that hangs for ever, once: calls return an error, stuck kernels leave.
void fakeGpuRelease(void);

// The host memory behind device memory, or NULL for an address that is none. For tests that look
// without asking the driver; nothing is checked.
void* fakeGpuPeek(uint64_t device_pointer);
// Streams execute nothing while paused: what is enqueued stays pending.
void fakeGpuPause(int paused);
// Bytes that are allocated on the device of that number.
uint64_t fakeGpuAllocatedBytes(int device);
// Streams that exist, their destroyed ones not counted.
int fakeGpuStreamCount(void);

typedef struct FakeGpuLaunch {
  unsigned grid[3];
  unsigned block[3];
  // As cuLaunchKernel has them: parameters[i] points to the i-th, copied when it was launched.
  void* const* parameters;
} FakeGpuLaunch;

// What a kernel reads (write == 0) and writes.
typedef void (*FakeGpuAccess)(void* context, uint64_t device_pointer, size_t bytes, int write);

typedef struct FakeGpuKernel {
  const char* name;
  size_t parameter_count;
  const size_t* parameter_bytes;
  // Carries the kernel out on the host. Device pointers become host pointers by fakeGpuPeek.
  void (*run)(const FakeGpuLaunch* launch);
  // Names what it will read and write, so that the order can be checked.
  void (*accesses)(const FakeGpuLaunch* launch, FakeGpuAccess access, void* context);
} FakeGpuKernel;

// A module whose PTX has an entry of that name finds it. The table must outlive the process's use
// of the library. The library that FAKE_GPU_KERNELS names is loaded by cuInit and registers its
// kernels in its function fakeGpuRegisterKernels().
void fakeGpuRegisterKernel(const FakeGpuKernel* kernel);

#ifdef __cplusplus
}
#endif
