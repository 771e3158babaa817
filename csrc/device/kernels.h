// The kernels that hvdtune launches on a GPU: their names and parameters.
//
// What they do is in device/kernel_bodies.h, from which clang makes the PTX text that the core
// carries (device/kernels.cu, `make ptx`). Parameters are passed in the order given, each as its
// type says.
//
//   hvdtune_gather_bytes     (PieceList inputs, void* packed)
//   hvdtune_scatter_bytes    (PieceList outputs, const void* packed)
//       Copies each piece to or from packed + begin. `begin` and `count` are bytes.
//   hvdtune_pack_<dtype>     (PieceList inputs, void* packed, double scale)
//   hvdtune_unpack_<dtype>   (PieceList outputs, const void* packed, int32_t divisor, double scale)
//       Copies and scales. `begin` and `count` are elements. What is packed has the type in which
//       it travels: int32 for integers below 32 bits, else the tensor's own.
//   hvdtune_reduce_<dtype>   (const void* contributions, uint64_t stride, uint64_t count,
//                             const uint32_t* host_sizes, uint32_t hosts, int32_t op,
//                             double prescale, int32_t divisor, double postscale, void* out)
//       The canonical reduction of collective/reduce/reduce.h: contribution i of `count` elements
//       begins at element i * stride; `op` is a ReduceOp. `out` may be the first contribution.
//   hvdtune_fill             (void* out, uint64_t count, uint32_t element_bytes, uint64_t bits)
//
// <dtype> is the name of any dtype but bool, whose elements are uint8 here. The grid of the kernels
// that take pieces is x blocks for each of `count` pieces in y; that of the others is x blocks.
// Every block has kKernelThreads threads.
#pragma once

#include <cstdint>

namespace hvdtune {

inline constexpr uint32_t kKernelThreads = 256;
// A launch has room for 4 KB of parameters.
inline constexpr uint32_t kMostPieces = 128;

struct Piece {
  uint64_t address;
  uint64_t begin;  // in what is packed
  uint64_t count;
};

struct PieceList {
  uint64_t count;
  Piece pieces[kMostPieces];
};

}  // namespace hvdtune
