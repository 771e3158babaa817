// A job whose tensors are on the fake GPUs of tests/fake_gpu: rank r has GPU r.
#pragma once

#include <dlfcn.h>

#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/half.h"
#include "runtime/job.h"
#include "timeline/reading.h"

namespace hvdtune::testing {

// What a test says to the fake, and asks it: tests/fake_gpu/include/fake_gpu.h.
struct Fake {
  int (*set_faults)(const char*);
  uint64_t (*faults_hit)(const char*);
  uint64_t (*violations)(const char*);
  const char* (*last_violation)();
  void (*reset)();
  void (*release)();
  void* (*peek)(uint64_t);
  void (*pause)(int);
  int (*launch_host_function)(CudaStream, void (*)(void*), void*);

  static const Fake& get() {
    static const Fake fake = load();
    return fake;
  }
  static std::string library(const char* name) {
    return std::string(HVDTUNE_FAKE_GPU_FOLDER) + "/" + name;
  }

 private:
  static Fake load() {
    setenv("FAKE_GPU_DEVICES", "8", 1);
    setenv("FAKE_GPU_KERNELS", library("libhvdtune_kernels.so").c_str(), 1);
    void* handle = dlopen(library("libcuda.so.1").c_str(), RTLD_NOW | RTLD_GLOBAL);
    if (handle == nullptr) fail(__FILE__, __LINE__, dlerror());
    Fake fake{};
    find(handle, "fakeGpuSetFaults", fake.set_faults);
    find(handle, "fakeGpuFaultsHit", fake.faults_hit);
    find(handle, "fakeGpuViolations", fake.violations);
    find(handle, "fakeGpuLastViolation", fake.last_violation);
    find(handle, "fakeGpuReset", fake.reset);
    find(handle, "fakeGpuRelease", fake.release);
    find(handle, "fakeGpuPeek", fake.peek);
    find(handle, "fakeGpuPause", fake.pause);
    find(handle, "cuLaunchHostFunc", fake.launch_host_function);
    return fake;
  }
  template <typename Function>
  static void find(void* handle, const char* name, Function& function) {
    function = reinterpret_cast<Function>(dlsym(handle, name));
    if (function == nullptr) fail(__FILE__, __LINE__, name);
  }
};

// One rank's GPU as its script sees it, with a stream that makes and reads tensors.
class Device {
 public:
  explicit Device(int number)
      : driver_(CudaDriver::open(Fake::library("libcuda.so.1"))),
        gpu_(std::make_shared<const Gpu>(driver_, number)),
        stream_(gpu_) {}

  const std::shared_ptr<const Gpu>& gpu() const { return gpu_; }
  CudaStream stream() const { return stream_.get(); }
  GpuPlace place() const { return {gpu_->number(), stream_.get()}; }

  void upload(const GpuMemory& memory, const void* from, size_t bytes) const {
    const Gpu::Scope scope(*gpu_);
    driver_->check(driver_->copy_to_device(cuda_pointer(memory.get()), from, bytes, stream_.get()),
                   "cuMemcpyHtoDAsync");
  }
  // Waits until what the stream has been given is done.
  void await() const {
    while (!stream_.is_idle()) std::this_thread::yield();
  }
  // REQUIRES: whatever writes the memory is ordered before the stream.
  std::vector<uint8_t> download(const uint8_t* memory, size_t bytes) const {
    await();
    std::vector<uint8_t> copy(bytes);
    if (bytes > 0) std::memcpy(copy.data(), Fake::get().peek(cuda_pointer(memory)), bytes);
    return copy;
  }

 private:
  std::shared_ptr<CudaDriver> driver_;
  std::shared_ptr<const Gpu> gpu_;
  GpuStream stream_;
};

// Elements of any type as bytes.
struct Values {
  DType dtype = DType::kFloat32;
  std::vector<uint8_t> bytes;

  size_t count() const { return bytes.size() / size_of(dtype); }
};

template <typename T>
Values values_of(DType dtype, const std::vector<T>& elements) {
  Values values{dtype, std::vector<uint8_t>(elements.size() * sizeof(T))};
  if (!elements.empty()) {
    std::memcpy(values.bytes.data(), elements.data(), values.bytes.size());
  }
  return values;
}

// A tensor in a GPU's memory, with another for the result.
class GpuTensorPair {
 public:
  GpuTensorPair(const Device& device, const Values& values, size_t output_bytes)
      : device_(device),
        input_(device.gpu(), values.bytes.size()),
        output_(device.gpu(), output_bytes),
        output_bytes_(output_bytes) {
    if (!values.bytes.empty()) device.upload(input_, values.bytes.data(), values.bytes.size());
  }
  GpuTensorPair(const Device& device, const Values& values)
      : GpuTensorPair(device, values, values.bytes.size()) {}

  ~GpuTensorPair() { device_.await(); }

  TensorMemory memory() const { return {input_.get(), output_.get()}; }
  TensorMemory in_place() const { return {input_.get(), input_.get()}; }
  std::vector<uint8_t> input() const { return device_.download(input_.get(), input_.bytes()); }
  std::vector<uint8_t> output() const { return device_.download(output_.get(), output_bytes_); }

 private:
  const Device& device_;
  GpuMemory input_;
  GpuMemory output_;
  size_t output_bytes_;
};

inline Submission on_gpu(const Device& device, Request request, std::vector<TensorMemory> memory) {
  request.on_gpu = true;
  Submission submission;
  submission.request = std::make_shared<const Request>(std::move(request));
  submission.memory = std::move(memory);
  submission.gpu = device.place();
  return submission;
}

inline RuntimeOptions with_gpu(RuntimeOptions options, GpuBits bits,
                               std::chrono::nanoseconds abort_timeout) {
  options.gpu.enabled = true;
  options.gpu.bits = bits;
  options.gpu.cuda_library = Fake::library("libcuda.so.1");
  options.gpu.nccl_library = Fake::library("libnccl.so.2");
  options.gpu.abort_timeout = abort_timeout;
  return options;
}

struct GpuJobOptions {
  int size = 2;
  int hosts = 1;
  GpuBits bits = GpuBits::kNccl;
  int exact_rank = -1;  // has other bits than the rest
  Setting setting = {};
  std::chrono::nanoseconds abort_timeout = std::chrono::seconds(30);
  HangOptions hang = {};
  LogLevel log_level = LogLevel::kError;
};

class GpuJob {
 public:
  explicit GpuJob(const GpuJobOptions& options)
      : options_({.size = options.size,
                  .hosts = options.hosts,
                  .setting = options.setting,
                  .log_level = options.log_level}),
        server_(server_options(options.size)),
        ranks_(static_cast<size_t>(options.size)) {
    Fake::get().reset();
    for (int rank = 0; rank < options.size; ++rank) {
      devices_.push_back(std::make_unique<Device>(rank));
    }
    on_all(options.size, [&](int rank) {
      RuntimeOptions each = with_gpu(runtime_options(options_, rank, server_.port()), options.bits,
                                     options.abort_timeout);
      each.hang = options.hang;
      if (rank == options.exact_rank) each.gpu.bits = GpuBits::kExact;
      ranks_[static_cast<size_t>(rank)] = std::make_unique<Runtime>(each);
    });
  }
  ~GpuJob() {
    end();
    check_order();
  }

  int size() const { return options_.size; }
  Runtime& operator[](int rank) { return *ranks_[static_cast<size_t>(rank)]; }
  const Device& device(int rank) const { return *devices_[static_cast<size_t>(rank)]; }
  void each(const std::function<void(Runtime&, const Device&, int)>& body) {
    on_all(options_.size, [&](int rank) { body((*this)[rank], device(rank), rank); });
  }
  void end() {
    on_all(options_.size, [this](int rank) { ranks_[static_cast<size_t>(rank)].reset(); });
  }
  // Nothing was used before it was ready, or after it was given back.
  static void check_order() {
    if (Fake::get().violations(nullptr) == 0) return;
    fail(__FILE__, __LINE__, Fake::get().last_violation());
  }

 private:
  JobOptions options_;
  JobServer server_;
  std::vector<std::unique_ptr<Device>> devices_;
  std::vector<std::unique_ptr<Runtime>> ranks_;
};

// A sum of so many numbers.
inline constexpr size_t kFloats = 1000;

inline Request sum_of(const std::string& name) {
  Request request;
  request.name = name;
  request.tensors = {{DType::kFloat32, {kFloats}}};
  return request;
}

inline Values floats(float value) {
  return values_of(DType::kFloat32, std::vector<float>(kFloats, value));
}

// Two sums at a time, of which the second, which is halved, needs memory of hvdtune's own.
inline void run_plain_and_scaled(Runtime& runtime, const Device& device, const GpuTensorPair& first,
                                 const GpuTensorPair& second) {
  Request scaled = sum_of("scaled");
  scaled.postscale = 0.5;
  std::vector<Submission> two;
  two.push_back(on_gpu(device, sum_of("plain"), {first.memory()}));
  two.push_back(on_gpu(device, scaled, {second.memory()}));
  for (const Handle handle : runtime.submit(std::move(two))) finish(runtime, handle);
}

// One tensor, waited for on the host: its result.
inline std::vector<uint8_t> run_one(Runtime& runtime, const Device& device, Request request,
                                    const Values& values, size_t output_bytes) {
  request.tensors = {{values.dtype, {static_cast<int64_t>(values.count())}}};
  const GpuTensorPair tensor(device, values, output_bytes);
  std::vector<Submission> one;
  one.push_back(on_gpu(device, std::move(request), {tensor.memory()}));
  const Handle handle = runtime.submit(std::move(one))[0];
  finish(runtime, handle);
  return tensor.output();
}

inline std::vector<uint8_t> run_one(Runtime& runtime, const Device& device, const Request& request,
                                    const Values& values) {
  return run_one(runtime, device, request, values, values.bytes.size());
}

// The fake's streams are late at random: after so many sums the clocks have been compared.
inline constexpr uint32_t kSumsForClocks = 60;

inline void record_with_clocks(Runtime& runtime, const Device& device, const ScratchFile& file) {
  TimelineOptions options;
  options.path = file.path();
  runtime.start_timeline(options);
  for (uint32_t i = 0; i < kSumsForClocks; ++i) {
    run_one(runtime, device, sum_of("first"), floats(1.0F));
  }
}

// The same on the host's memory, by hvdtune's own algorithms.
inline std::vector<uint8_t> run_on_host(Runtime& runtime, Request request, const Values& values) {
  request.name += " on the host";
  request.tensors = {{values.dtype, {static_cast<int64_t>(values.count())}}};
  std::vector<uint8_t> output(values.bytes.size());
  Draft draft;
  draft.request = std::move(request);
  draft.input = values.bytes.data();
  draft.output = output.data();
  finish(runtime, submit_one(runtime, draft));
  return output;
}

}  // namespace hvdtune::testing
