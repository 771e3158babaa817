// The kernels as clang compiles them to PTX (`make ptx`): neither headers nor libraries of CUDA are
// needed.
#define HVDTUNE_DEVICE __attribute__((device))
#define HVDTUNE_ENTRY extern "C" __attribute__((global)) void

#include <bit>
#include <cstdint>
#include <limits>

#include "base/reduce_op.h"
#include "device/kernels.h"

#pragma clang force_cuda_host_device begin
#include "base/half.h"

namespace hvdtune {
namespace {
#include "base/arithmetic.h"
#include "device/kernel_bodies.h"
}  // namespace
}  // namespace hvdtune
#pragma clang force_cuda_host_device end

namespace hvdtune {
namespace {

HVDTUNE_DEVICE inline Lane lane() {
  const uint64_t threads = __nvvm_read_ptx_sreg_ntid_x();
  return {__nvvm_read_ptx_sreg_ctaid_x() * threads + __nvvm_read_ptx_sreg_tid_x(),
          __nvvm_read_ptx_sreg_nctaid_x() * threads};
}

HVDTUNE_DEVICE inline const Piece& piece_of(const PieceList& pieces) {
  return pieces.pieces[__nvvm_read_ptx_sreg_ctaid_y()];
}

}  // namespace

HVDTUNE_ENTRY hvdtune_gather_bytes(PieceList inputs, void* packed) {
  const Piece& piece = piece_of(inputs);
  copy_bytes(reinterpret_cast<uint64_t>(packed) + piece.begin, piece.address, piece.count, lane());
}

HVDTUNE_ENTRY hvdtune_scatter_bytes(PieceList outputs, const void* packed) {
  const Piece& piece = piece_of(outputs);
  copy_bytes(piece.address, reinterpret_cast<uint64_t>(packed) + piece.begin, piece.count, lane());
}

HVDTUNE_ENTRY hvdtune_fill(void* out, uint64_t count, uint32_t element_bytes, uint64_t bits) {
  fill_elements(out, count, element_bytes, bits, lane());
}

#define HVDTUNE_KERNELS_OF(dtype, T)                                                               \
  HVDTUNE_ENTRY hvdtune_pack_##dtype(PieceList inputs, void* packed, double scale) {                  \
    pack_piece<T>(piece_of(inputs), packed, scale, lane());                                        \
  }                                                                                                \
  HVDTUNE_ENTRY hvdtune_unpack_##dtype(PieceList outputs, const void* packed, int32_t divisor,        \
                                       double scale) {                                             \
    unpack_piece<T>(piece_of(outputs), packed, divisor, scale, lane());                            \
  }                                                                                                \
  HVDTUNE_ENTRY hvdtune_reduce_##dtype(const void* contributions, uint64_t stride, uint64_t count, \
                                       const uint32_t* host_sizes, uint32_t hosts, int32_t op,     \
                                       double prescale, int32_t divisor, double postscale,         \
                                       void* out) {                                                \
    reduce_elements<T>({contributions, stride, count, host_sizes, hosts, op, prescale, divisor,    \
                        postscale, out},                                                           \
                       lane());                                                                    \
  }

HVDTUNE_KERNELS_OF(uint8, uint8_t)
HVDTUNE_KERNELS_OF(int8, int8_t)
HVDTUNE_KERNELS_OF(int16, int16_t)
HVDTUNE_KERNELS_OF(uint16, uint16_t)
HVDTUNE_KERNELS_OF(int32, int32_t)
HVDTUNE_KERNELS_OF(int64, int64_t)
HVDTUNE_KERNELS_OF(float16, Half)
HVDTUNE_KERNELS_OF(bfloat16, Bfloat16)
HVDTUNE_KERNELS_OF(float32, float)
HVDTUNE_KERNELS_OF(float64, double)

}  // namespace hvdtune
