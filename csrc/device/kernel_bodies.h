// What the kernels of device/kernels.h do, for one thread of many: compiled for GPUs, and for the
// host by tests.
//
// It is included inside a namespace, after base/arithmetic.h in the same one; <cstdint>,
// "base/reduce_op.h" and "device/kernels.h" come before. HVDTUNE_DEVICE marks functions of a GPU.

// The elements of a thread: `first`, and then every `step`-th.
struct Lane {
  uint64_t first;
  uint64_t step;
};

// In which type elements of T travel: narrow integers as what they are added up in.
template <typename T>
struct Travelling {
  using Type = T;
};
template <>
struct Travelling<uint8_t> {
  using Type = int32_t;
};
template <>
struct Travelling<int8_t> {
  using Type = int32_t;
};
template <>
struct Travelling<int16_t> {
  using Type = int32_t;
};
template <>
struct Travelling<uint16_t> {
  using Type = int32_t;
};

struct alignas(16) Bytes16 {
  uint64_t low;
  uint64_t high;
};

template <typename Unit>
HVDTUNE_DEVICE inline void copy_units(uint64_t to, uint64_t from, uint64_t bytes, Lane lane) {
  Unit* out = reinterpret_cast<Unit*>(to);
  const Unit* in = reinterpret_cast<const Unit*>(from);
  for (uint64_t i = lane.first; i < bytes / sizeof(Unit); i += lane.step) out[i] = in[i];
}

HVDTUNE_DEVICE inline void copy_bytes(uint64_t to, uint64_t from, uint64_t bytes, Lane lane) {
  const uint64_t places = to | from | bytes;
  if (places % 16 == 0) return copy_units<Bytes16>(to, from, bytes, lane);
  if (places % 4 == 0) return copy_units<uint32_t>(to, from, bytes, lane);
  if (places % 2 == 0) return copy_units<uint16_t>(to, from, bytes, lane);
  copy_units<uint8_t>(to, from, bytes, lane);
}

template <typename T>
HVDTUNE_DEVICE inline void pack_piece(const Piece& piece, void* packed, double scale, Lane lane) {
  using Type = typename Travelling<T>::Type;
  const T* from = reinterpret_cast<const T*>(piece.address);
  Type* to = static_cast<Type*>(packed) + piece.begin;
  for (uint64_t i = lane.first; i < piece.count; i += lane.step) {
    auto value = widen(from[i]);
    if (scale != 1.0) value = scaled(value, scale);
    narrow(value, to[i]);
  }
}

// `value` has been combined; what all ranks have is made of it.
template <typename T, typename Acc>
HVDTUNE_DEVICE inline void finish_element(Acc value, T& out, int32_t divisor, double scale) {
  if (divisor != 1) value = value / static_cast<Acc>(divisor);
  if (scale != 1.0) value = scaled(value, scale);
  narrow(value, out);
}

template <typename T>
HVDTUNE_DEVICE inline void unpack_piece(const Piece& piece, const void* packed, int32_t divisor,
                                        double scale, Lane lane) {
  using Type = typename Travelling<T>::Type;
  T* to = reinterpret_cast<T*>(piece.address);
  const Type* from = static_cast<const Type*>(packed) + piece.begin;
  for (uint64_t i = lane.first; i < piece.count; i += lane.step) {
    finish_element(widen(from[i]), to[i], divisor, scale);
  }
}

template <typename Acc>
HVDTUNE_DEVICE inline Acc combine(int32_t op, Acc a, Acc b) {
  if (op == static_cast<int32_t>(ReduceOp::kMin)) return Min::apply(a, b);
  if (op == static_cast<int32_t>(ReduceOp::kMax)) return Max::apply(a, b);
  if (op == static_cast<int32_t>(ReduceOp::kProduct)) return Product::apply(a, b);
  return Sum::apply(a, b);
}

struct ReduceArguments {
  const void* contributions;
  uint64_t stride;
  uint64_t count;
  const uint32_t* host_sizes;
  uint32_t hosts;
  int32_t op;
  double prescale;
  int32_t divisor;
  double postscale;
  void* out;
};

template <typename T>
HVDTUNE_DEVICE inline auto contribution(const ReduceArguments& how, uint64_t rank, uint64_t i) {
  auto value = widen(static_cast<const T*>(how.contributions)[rank * how.stride + i]);
  return how.prescale != 1.0 ? scaled(value, how.prescale) : value;
}

template <typename T>
HVDTUNE_DEVICE inline void reduce_elements(const ReduceArguments& how, Lane lane) {
  for (uint64_t i = lane.first; i < how.count; i += lane.step) {
    typename Element<T>::Acc total{};
    uint64_t rank = 0;
    for (uint32_t host = 0; host < how.hosts; ++host) {
      auto partial = contribution<T>(how, rank++, i);
      for (uint32_t local = 1; local < how.host_sizes[host]; ++local) {
        partial = combine(how.op, partial, contribution<T>(how, rank++, i));
      }
      total = host == 0 ? partial : combine(how.op, total, partial);
    }
    finish_element(total, static_cast<T*>(how.out)[i], how.divisor, how.postscale);
  }
}

template <typename Unit>
HVDTUNE_DEVICE inline void fill_units(void* out, uint64_t count, uint64_t bits, Lane lane) {
  for (uint64_t i = lane.first; i < count; i += lane.step) {
    static_cast<Unit*>(out)[i] = static_cast<Unit>(bits);
  }
}

HVDTUNE_DEVICE inline void fill_elements(void* out, uint64_t count, uint32_t element_bytes,
                                         uint64_t bits, Lane lane) {
  if (element_bytes == 1) return fill_units<uint8_t>(out, count, bits, lane);
  if (element_bytes == 2) return fill_units<uint16_t>(out, count, bits, lane);
  if (element_bytes == 4) return fill_units<uint32_t>(out, count, bits, lane);
  fill_units<uint64_t>(out, count, bits, lane);
}
