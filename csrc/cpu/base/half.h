// Half-precision storage types, converted on load only. No standard headers and no operators: this
// header is included where instruction-set pragmas are active.
#pragma once

#include <cstdint>

namespace simcore::cpu {

// IEEE binary16: a compiler type in GCC and Clang on x86-64 and Arm, of which GCC 12 has an older
// name for Arm.
#if defined(__aarch64__) && !defined(__clang__) && __GNUC__ < 13
using Float16 = __fp16;
#else
using Float16 = _Float16;
#endif

struct BFloat16 {
  uint16_t bits;
  float to_float() const { return __builtin_bit_cast(float, uint32_t(bits) << 16); }
};

template <int... i>
struct IntSequence {};
template <int n, int... i>
struct IntSequenceBuilder : IntSequenceBuilder<n - 1, n - 1, i...> {};
template <int... i>
struct IntSequenceBuilder<0, i...> {
  using type = IntSequence<i...>;
};
template <int n>
using MakeIntSequence = typename IntSequenceBuilder<n>::type;

}  // namespace simcore::cpu
