// Launches the kernels of device/kernels.h on a stream.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>

#include "base/dtype.h"
#include "base/reduce_op.h"
#include "device/gpu.h"
#include "device/kernels.h"

namespace hvdtune {

// The canonical reduction of contributions that lie in a GPU's memory.
struct GpuReduction {
  DType dtype = DType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  double prescale = 1.0;
  double postscale = 1.0;
  int divisor = 1;
  const uint8_t* host_sizes = nullptr;  // `hosts` numbers of 32 bits, in the GPU's memory
  uint32_t hosts = 1;
};

// Thread rule: one thread, which has made the GPU's context current.
class KernelLauncher {
 public:
  explicit KernelLauncher(std::shared_ptr<const Gpu> gpu);
  ~KernelLauncher();
  KernelLauncher(const KernelLauncher&) = delete;
  KernelLauncher& operator=(const KernelLauncher&) = delete;

  // `begin` and `count` of the pieces are bytes.
  void gather(std::span<const Piece> inputs, uint8_t* packed, CudaStream stream);
  void scatter(std::span<const Piece> outputs, const uint8_t* packed, CudaStream stream);
  // `begin` and `count` of the pieces are elements.
  void pack(DType dtype, std::span<const Piece> inputs, uint8_t* packed, double scale,
            CudaStream stream);
  void unpack(DType dtype, std::span<const Piece> outputs, const uint8_t* packed, int divisor,
              double scale, CudaStream stream);
  // Contribution i begins at element i * stride.
  void reduce(const GpuReduction& how, const uint8_t* contributions, uint64_t stride,
              uint64_t count, uint8_t* out, CudaStream stream);
  void fill(uint8_t* out, uint64_t count, size_t element_bytes, uint64_t bits, CudaStream stream);

 private:
  CudaFunction function(const std::string& name);
  void launch(const std::string& name, uint64_t elements, unsigned rows, CudaStream stream,
              std::span<void*> parameters);
  template <typename Launch>
  void in_portions(std::span<const Piece> pieces, Launch launch);

  const std::shared_ptr<const Gpu> gpu_;
  CudaModule module_ = nullptr;
  std::unordered_map<std::string, CudaFunction> functions_;
};

}  // namespace hvdtune
