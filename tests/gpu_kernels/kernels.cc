// hvdtune's kernels carried out by the host, for the fake GPU, from the text of which the PTX is
// made. FAKE_GPU_KERNELS names the library.
#include "device/kernels.h"

#include <cstdint>
#include <cstring>
#include <deque>
#include <limits>
#include <string>
#include <vector>

#include "base/half.h"
#include "base/reduce_op.h"
#include "fake_gpu.h"

#define HVDTUNE_DEVICE

namespace hvdtune {
namespace {

#include "base/arithmetic.h"
#include "device/kernel_bodies.h"

constexpr Lane kAll{0, 1};

template <typename T>
T parameter(const FakeGpuLaunch& launch, size_t index) {
  T value;
  std::memcpy(&value, launch.parameters[index], sizeof value);
  return value;
}

uint64_t pointer(const FakeGpuLaunch& launch, size_t index) {
  return parameter<uint64_t>(launch, index);
}

template <typename T>
T* on_host(uint64_t address) {
  return static_cast<T*>(fakeGpuPeek(address));
}

// The pieces with the host's addresses.
PieceList pieces_of(const FakeGpuLaunch& launch) {
  auto pieces = parameter<PieceList>(launch, 0);
  for (uint64_t i = 0; i < pieces.count; ++i) {
    pieces.pieces[i].address = reinterpret_cast<uint64_t>(fakeGpuPeek(pieces.pieces[i].address));
  }
  return pieces;
}

// What a kernel that takes pieces reads and writes: elements have one size there, another packed.
template <bool kPacks>
void piece_accesses(const FakeGpuLaunch* launch, FakeGpuAccess access, void* context,
                    size_t element, size_t packed_element) {
  const auto pieces = parameter<PieceList>(*launch, 0);
  const uint64_t packed = pointer(*launch, 1);
  for (uint64_t i = 0; i < pieces.count; ++i) {
    const Piece& piece = pieces.pieces[i];
    access(context, piece.address, piece.count * element, kPacks ? 0 : 1);
    access(context, packed + piece.begin * packed_element, piece.count * packed_element,
           kPacks ? 1 : 0);
  }
}

void gather(const FakeGpuLaunch* launch) {
  const PieceList pieces = pieces_of(*launch);
  auto* packed = on_host<uint8_t>(pointer(*launch, 1));
  for (uint64_t i = 0; i < pieces.count; ++i) {
    const Piece& piece = pieces.pieces[i];
    copy_bytes(reinterpret_cast<uint64_t>(packed) + piece.begin, piece.address, piece.count, kAll);
  }
}

void scatter(const FakeGpuLaunch* launch) {
  const PieceList pieces = pieces_of(*launch);
  auto* packed = on_host<uint8_t>(pointer(*launch, 1));
  for (uint64_t i = 0; i < pieces.count; ++i) {
    const Piece& piece = pieces.pieces[i];
    copy_bytes(piece.address, reinterpret_cast<uint64_t>(packed) + piece.begin, piece.count, kAll);
  }
}

template <typename T>
void pack(const FakeGpuLaunch* launch) {
  const PieceList pieces = pieces_of(*launch);
  auto* packed = on_host<void>(pointer(*launch, 1));
  for (uint64_t i = 0; i < pieces.count; ++i) {
    pack_piece<T>(pieces.pieces[i], packed, parameter<double>(*launch, 2), kAll);
  }
}

template <typename T>
void unpack(const FakeGpuLaunch* launch) {
  const PieceList pieces = pieces_of(*launch);
  const auto* packed = on_host<const void>(pointer(*launch, 1));
  for (uint64_t i = 0; i < pieces.count; ++i) {
    unpack_piece<T>(pieces.pieces[i], packed, parameter<int32_t>(*launch, 2),
                    parameter<double>(*launch, 3), kAll);
  }
}

template <typename T>
void reduce(const FakeGpuLaunch* launch) {
  const FakeGpuLaunch& l = *launch;
  reduce_elements<T>({on_host<const void>(pointer(l, 0)), pointer(l, 1), pointer(l, 2),
                      on_host<const uint32_t>(pointer(l, 3)), parameter<uint32_t>(l, 4),
                      parameter<int32_t>(l, 5), parameter<double>(l, 6), parameter<int32_t>(l, 7),
                      parameter<double>(l, 8), on_host<void>(pointer(l, 9))},
                     kAll);
}

template <typename T>
void reduce_accesses(const FakeGpuLaunch* launch, FakeGpuAccess access, void* context) {
  const uint64_t stride = pointer(*launch, 1) * sizeof(T);
  const uint64_t bytes = pointer(*launch, 2) * sizeof(T);
  const auto hosts = parameter<uint32_t>(*launch, 4);
  access(context, pointer(*launch, 3), hosts * sizeof(uint32_t), 0);
  // How many ranks a host has is known when it runs; the first contribution stands for all.
  access(context, pointer(*launch, 0), stride < bytes ? stride : bytes, 0);
  access(context, pointer(*launch, 9), bytes, 1);
}

void fill(const FakeGpuLaunch* launch) {
  fill_elements(on_host<void>(pointer(*launch, 0)), pointer(*launch, 1),
                parameter<uint32_t>(*launch, 2), pointer(*launch, 3), kAll);
}

void fill_accesses(const FakeGpuLaunch* launch, FakeGpuAccess access, void* context) {
  access(context, pointer(*launch, 0), pointer(*launch, 1) * parameter<uint32_t>(*launch, 2), 1);
}

constexpr size_t kBytesParameters[] = {sizeof(PieceList), 8};
constexpr size_t kPackParameters[] = {sizeof(PieceList), 8, 8};
constexpr size_t kUnpackParameters[] = {sizeof(PieceList), 8, 4, 8};
constexpr size_t kReduceParameters[] = {8, 8, 8, 8, 4, 4, 8, 4, 8, 8};
constexpr size_t kFillParameters[] = {8, 8, 4, 8};

template <bool kPacks, size_t kElement, size_t kPacked>
void accesses(const FakeGpuLaunch* launch, FakeGpuAccess access, void* context) {
  piece_accesses<kPacks>(launch, access, context, kElement, kPacked);
}

struct Kept {
  std::string name;
  FakeGpuKernel kernel;
};

// Never freed: the fake keeps pointers to them.
std::deque<Kept>& kept() {
  static auto* const all = new std::deque<Kept>;
  return *all;
}

void add(const std::string& name, size_t count, const size_t* bytes,
         void (*run)(const FakeGpuLaunch*),
         void (*accesses)(const FakeGpuLaunch*, FakeGpuAccess, void*)) {
  Kept& fresh = kept().emplace_back(Kept{name, {nullptr, count, bytes, run, accesses}});
  fresh.kernel.name = fresh.name.c_str();
  fakeGpuRegisterKernel(&fresh.kernel);
}

template <typename T>
void add_all(const std::string& dtype) {
  constexpr size_t kPacked = sizeof(typename Travelling<T>::Type);
  add("hvdtune_pack_" + dtype, 3, kPackParameters, &pack<T>, &accesses<true, sizeof(T), kPacked>);
  add("hvdtune_unpack_" + dtype, 4, kUnpackParameters, &unpack<T>,
      &accesses<false, sizeof(T), kPacked>);
  add("hvdtune_reduce_" + dtype, 10, kReduceParameters, &reduce<T>, &reduce_accesses<T>);
}

}  // namespace
}  // namespace hvdtune

extern "C" void fakeGpuRegisterKernels() {
  using namespace hvdtune;
  add("hvdtune_gather_bytes", 2, kBytesParameters, &gather, &accesses<true, 1, 1>);
  add("hvdtune_scatter_bytes", 2, kBytesParameters, &scatter, &accesses<false, 1, 1>);
  add("hvdtune_fill", 4, kFillParameters, &fill, &fill_accesses);
  add_all<uint8_t>("uint8");
  add_all<int8_t>("int8");
  add_all<int16_t>("int16");
  add_all<uint16_t>("uint16");
  add_all<int32_t>("int32");
  add_all<int64_t>("int64");
  add_all<Half>("float16");
  add_all<Bfloat16>("bfloat16");
  add_all<float>("float32");
  add_all<double>("float64");
}
