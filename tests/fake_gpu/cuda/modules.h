// Kernels by name: modules are PTX whose entries are looked up among the host functions that were
// registered. No instruction of the PTX is carried out.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "../include/fake_gpu.h"

namespace fake_gpu {

// An entry of PTX, and how many bytes each of its parameters has.
struct Entry {
  std::string name;
  std::vector<size_t> parameter_bytes;
};
std::vector<Entry> entries_of(std::string_view ptx);

void register_kernel(const FakeGpuKernel* kernel);
const FakeGpuKernel* kernel_named(std::string_view name);
// Loads the library that FAKE_GPU_KERNELS names. False, with a sentence, if that fails.
bool load_kernels();

}  // namespace fake_gpu
