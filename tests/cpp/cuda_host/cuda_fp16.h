// See cuda_runtime.h beside this.
#pragma once

struct __half {
  _Float16 value;
};
inline float __half2float(__half x) { return float(x.value); }
inline __half __float2half_rn(float x) { return {_Float16(x)}; }
inline unsigned short __half_as_ushort(__half x) { return __builtin_bit_cast(unsigned short, x); }
inline __half __ushort_as_half(unsigned short x) { return __builtin_bit_cast(__half, x); }
