#include "device/kernel_launcher.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/status.h"
#include "device/kernels_ptx.h"

namespace hvdtune {
namespace {

// Blocks of one launch: more than any GPU runs at a time, and each thread then takes several
// elements.
constexpr uint64_t kMostBlocks = 1024;

std::string named(const char* kernel, DType dtype) {
  // The arithmetic on 0 and 1 is that of small numbers.
  const DType meant = dtype == DType::kBool ? DType::kUint8 : dtype;
  return std::string("hvdtune_") + kernel + "_" + std::string(name_of(meant));
}

}  // namespace

KernelLauncher::KernelLauncher(std::shared_ptr<const Gpu> gpu) : gpu_(std::move(gpu)) {
  const Gpu::Scope scope(*gpu_);
  const CudaDriver& driver = gpu_->driver();
  const CudaResult result = driver.load_module(&module_, kKernelsPtx);
  if (result != kCudaSuccess) {
    throw Error(ErrorCode::kInternal, "cannot load hvdtune's kernels on GPU " +
                                          std::to_string(gpu_->number()) + ": " +
                                          driver.describe(result));
  }
}

KernelLauncher::~KernelLauncher() {
  const Gpu::Scope scope(*gpu_);
  gpu_->driver().unload_module(module_);
}

CudaFunction KernelLauncher::function(const std::string& name) {
  const auto [found, is_new] = functions_.try_emplace(name, nullptr);
  if (is_new) {
    const CudaDriver& driver = gpu_->driver();
    driver.check(driver.get_function(&found->second, module_, name.c_str()), name.c_str());
  }
  return found->second;
}

void KernelLauncher::launch(const std::string& name, uint64_t elements, unsigned rows,
                            CudaStream stream, std::span<void*> parameters) {
  const uint64_t blocks = (elements + kKernelThreads - 1) / kKernelThreads;
  const auto columns = static_cast<unsigned>(std::clamp<uint64_t>(blocks, 1, kMostBlocks));
  const CudaDriver& driver = gpu_->driver();
  driver.check(driver.launch(function(name), columns, rows, 1, kKernelThreads, 1, 1, 0, stream,
                             parameters.data(), nullptr),
               name.c_str());
}

// One launch has room for a limited number of pieces.
template <typename Launch>
void KernelLauncher::in_portions(std::span<const Piece> pieces, Launch launch) {
  for (size_t at = 0; at < pieces.size(); at += kMostPieces) {
    const auto portion = pieces.subspan(at, std::min<size_t>(kMostPieces, pieces.size() - at));
    PieceList parameter{};
    parameter.count = portion.size();
    std::ranges::copy(portion, parameter.pieces);
    const uint64_t longest = std::ranges::max_element(portion, {}, &Piece::count)->count;
    launch(parameter, longest, static_cast<unsigned>(portion.size()));
  }
}

void KernelLauncher::gather(std::span<const Piece> inputs, uint8_t* packed, CudaStream stream) {
  in_portions(inputs, [&](PieceList& pieces, uint64_t longest, unsigned rows) {
    std::array<void*, 2> parameters = {&pieces, &packed};
    launch("hvdtune_gather_bytes", longest / 16, rows, stream, parameters);
  });
}

void KernelLauncher::scatter(std::span<const Piece> outputs, const uint8_t* packed,
                             CudaStream stream) {
  in_portions(outputs, [&](PieceList& pieces, uint64_t longest, unsigned rows) {
    std::array<void*, 2> parameters = {&pieces, &packed};
    launch("hvdtune_scatter_bytes", longest / 16, rows, stream, parameters);
  });
}

void KernelLauncher::pack(DType dtype, std::span<const Piece> inputs, uint8_t* packed, double scale,
                          CudaStream stream) {
  in_portions(inputs, [&](PieceList& pieces, uint64_t longest, unsigned rows) {
    std::array<void*, 3> parameters = {&pieces, &packed, &scale};
    launch(named("pack", dtype), longest, rows, stream, parameters);
  });
}

void KernelLauncher::unpack(DType dtype, std::span<const Piece> outputs, const uint8_t* packed,
                            int divisor, double scale, CudaStream stream) {
  in_portions(outputs, [&](PieceList& pieces, uint64_t longest, unsigned rows) {
    std::array<void*, 4> parameters = {&pieces, &packed, &divisor, &scale};
    launch(named("unpack", dtype), longest, rows, stream, parameters);
  });
}

void KernelLauncher::reduce(const GpuReduction& how, const uint8_t* contributions, uint64_t stride,
                            uint64_t count, uint8_t* out, CudaStream stream) {
  GpuReduction mine = how;
  auto op = static_cast<int32_t>(how.op);
  std::array<void*, 10> parameters = {&contributions,  &stride, &count,         &mine.host_sizes,
                                      &mine.hosts,     &op,     &mine.prescale, &mine.divisor,
                                      &mine.postscale, &out};
  launch(named("reduce", how.dtype), count, 1, stream, parameters);
}

void KernelLauncher::fill(uint8_t* out, uint64_t count, size_t element_bytes, uint64_t bits,
                          CudaStream stream) {
  auto element = static_cast<uint32_t>(element_bytes);
  std::array<void*, 4> parameters = {&out, &count, &element, &bits};
  launch("hvdtune_fill", count, 1, stream, parameters);
}

}  // namespace hvdtune
