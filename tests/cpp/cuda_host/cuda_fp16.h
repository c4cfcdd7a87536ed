// See cuda_runtime.h beside this.
#pragma once

struct __half {
  _Float16 value;
};
inline float __half2float(__half x) { return float(x.value); }
