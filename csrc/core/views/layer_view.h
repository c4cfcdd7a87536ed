// A layer's representation as the caller holds it: any strides, any floating dtype, never copied.
#pragma once

#include <cstdint>

namespace simcore {

enum class DType : int { f16 = 0, bf16 = 1, f32 = 2, f64 = 3 };

constexpr int64_t bytes_of(DType dtype) {
  return dtype == DType::f64 ? 8 : dtype == DType::f32 ? 4 : 2;
}

// Returns the distance from 1 to the next number of the dtype.
constexpr double eps_of(DType dtype) {
  switch (dtype) {
    case DType::f16: return 0x1p-10;
    case DType::bf16: return 0x1p-7;
    case DType::f32: return 0x1p-23;
    default: return 0x1p-52;
  }
}

struct LayerView {
  const void* data;  // [n, width], element (i, k) at data + i * row_stride + k * col_stride
  DType dtype;
  int64_t width;
  int64_t row_stride;  // in elements; may be 0 or negative
  int64_t col_stride;
};

}  // namespace simcore
