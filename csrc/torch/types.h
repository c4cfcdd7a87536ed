// Dtypes, devices and shapes, as torch's stable ABI has them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <ostream>
#include <span>
#include <vector>

#include "torch/abi.h"

namespace simcore {

// Each dtype by its name in messages, and the function that returns torch's number of it.
#define SIMCORE_DTYPES(each)                                                                     \
  each(Float, aoti_torch_dtype_float32) each(Double, aoti_torch_dtype_float64)                   \
      each(Half, aoti_torch_dtype_float16) each(BFloat16, aoti_torch_dtype_bfloat16)             \
          each(Int, aoti_torch_dtype_int32) each(Long, aoti_torch_dtype_int64)                   \
              each(Bool, aoti_torch_dtype_bool) each(Byte, aoti_torch_dtype_uint8)               \
                  each(Char, aoti_torch_dtype_int8) each(Short, aoti_torch_dtype_int16) each(    \
                      ComplexHalf, aoti_torch_dtype_complex32) each(ComplexFloat,                \
                                                                    aoti_torch_dtype_complex64)  \
                      each(ComplexDouble, aoti_torch_dtype_complex128) each(                     \
                          UInt16, aoti_torch_dtype_uint16) each(UInt32, aoti_torch_dtype_uint32) \
                          each(UInt64, aoti_torch_dtype_uint64)                                  \
                              each(Float8_e5m2, aoti_torch_dtype_float8_e5m2)                    \
                                  each(Float8_e4m3fn, aoti_torch_dtype_float8_e4m3fn) each(      \
                                      Float8_e5m2fnuz, aoti_torch_dtype_float8_e5m2fnuz)         \
                                      each(Float8_e4m3fnuz, aoti_torch_dtype_float8_e4m3fnuz)    \
                                          each(Float8_e8m0fnu, torch_dtype_float8_e8m0fnu)       \
                                              each(Float4_e2m1fn_x2, torch_dtype_float4_e2m1fn_x2)

#define SIMCORE_NAME(name, number) name,
enum class ScalarType { SIMCORE_DTYPES(SIMCORE_NAME) };
#undef SIMCORE_NAME

int32_t number_of(ScalarType dtype);  // torch's
ScalarType dtype_of_number(int32_t number);
std::ostream& operator<<(std::ostream& stream, ScalarType dtype);

inline bool is_floating(ScalarType dtype) {
  return dtype == ScalarType::Double || dtype == ScalarType::Float || dtype == ScalarType::Half ||
         dtype == ScalarType::BFloat16;
}

class Device {
 public:
  Device(int32_t type, int32_t index) : type_(type), index_(index) {}
  static Device cpu() { return {aoti_torch_device_type_cpu(), -1}; }

  int32_t type() const { return type_; }  // torch's number
  int32_t index() const { return index_; }
  bool operator==(const Device&) const = default;

 private:
  int32_t type_, index_;
};

std::ostream& operator<<(std::ostream& stream, const Device& device);

// Sizes or strides, which another holds.
class Shape : public std::span<const int64_t> {
 public:
  using std::span<const int64_t>::span;
  Shape(std::initializer_list<int64_t> numbers) : span(numbers.begin(), numbers.size()) {}

  Shape prefix(int64_t count) const { return Shape(data(), size_t(count)); }
  bool operator==(const Shape& other) const { return std::ranges::equal(*this, other); }
};

std::ostream& operator<<(std::ostream& stream, const Shape& shape);

}  // namespace simcore
