// Tensors, and how arguments and results of operators lie in a StableIValue: numbers as they are,
// all else as a handle, which belongs to whom it is given.
#pragma once

#include <bit>
#include <concepts>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "torch/abi.h"
#include "torch/errors.h"
#include "torch/types.h"

namespace simcore {

static_assert(std::endian::native == std::endian::little);

// A reference to one of torch's tensors, or to none.
class Tensor {
 public:
  Tensor() = default;
  explicit Tensor(AtenTensorHandle owned) : handle_(owned, aoti_torch_delete_tensor_object) {}

  AtenTensorHandle handle() const { return handle_.get(); }
  int64_t dim() const { return ask<int64_t>(aoti_torch_get_dim); }
  int64_t numel() const { return ask<int64_t>(aoti_torch_get_numel); }
  int64_t size(int64_t dim) const { return ask<int64_t>(aoti_torch_get_size, dim); }
  int64_t stride(int64_t dim) const { return ask<int64_t>(aoti_torch_get_stride, dim); }
  Shape sizes() const { return Shape(ask<int64_t*>(aoti_torch_get_sizes), size_t(dim())); }
  Shape strides() const { return Shape(ask<int64_t*>(aoti_torch_get_strides), size_t(dim())); }
  bool is_contiguous() const { return ask<bool>(aoti_torch_is_contiguous); }
  ScalarType scalar_type() const { return dtype_of_number(ask<int32_t>(aoti_torch_get_dtype)); }
  int64_t element_size() const {
    return int64_t(aoti_torch_dtype_element_size(ask<int32_t>(aoti_torch_get_dtype)));
  }
  Device device() const {
    return {ask<int32_t>(aoti_torch_get_device_type), ask<int32_t>(aoti_torch_get_device_index)};
  }
  const void* const_data_ptr() const { return ask<const void*>(torch_get_const_data_ptr); }
  void* mutable_data_ptr() const { return ask<void*>(torch_get_mutable_data_ptr); }

 private:
  template <typename T, typename Function, typename... Args>
  T ask(Function function, Args... args) const {
    T answer{};
    succeed(function(handle(), args..., &answer), "it does not describe a tensor");
    return answer;
  }

  std::shared_ptr<AtenTensorOpaque> handle_;
};

using Tensors = std::vector<Tensor>;

template <typename T>
const T* const_data(const Tensor& tensor) {
  return static_cast<const T*>(tensor.const_data_ptr());
}

template <typename T>
T* mutable_data(const Tensor& tensor) {
  return static_cast<T*>(tensor.mutable_data_ptr());
}

// give(x) returns what torch then owns; take(value) owns what torch has given.
template <typename T>
struct Value;

template <typename T>
StableIValue give(const T& x) {
  return Value<T>::give(x);
}

template <typename T>
T take(StableIValue value) {
  return Value<T>::take(value);
}

template <typename T>
concept Plain = std::same_as<T, int64_t> || std::same_as<T, double> || std::same_as<T, bool> ||
                std::is_pointer_v<T>;

template <Plain T>
struct Value<T> {
  static StableIValue give(T x) {
    StableIValue value = 0;
    std::memcpy(&value, &x, sizeof(x));
    return value;
  }
  static T take(StableIValue value) {
    T x;
    std::memcpy(&x, &value, sizeof(x));
    return x;
  }
};

template <>
struct Value<ScalarType> {
  static StableIValue give(ScalarType dtype) { return uint32_t(number_of(dtype)); }
  static ScalarType take(StableIValue value) { return dtype_of_number(int32_t(value)); }
};

template <>
struct Value<Device> {  // taken by no operator
  static StableIValue give(const Device& device) {
    return StableIValue(uint32_t(device.type())) << 32 | uint32_t(device.index());
  }
};

template <>
struct Value<Tensor> {
  static StableIValue give(const Tensor& tensor) {
    AtenTensorHandle same = nullptr;
    succeed(aoti_torch_new_tensor_handle(tensor.handle(), &same), "no new handle of a tensor");
    return simcore::give(same);
  }
  static Tensor take(StableIValue value) { return Tensor(simcore::take<AtenTensorHandle>(value)); }
};

template <>
struct Value<std::string> {
  static StableIValue give(const std::string& string) {
    StringHandle handle = nullptr;
    succeed(torch_new_string_handle(string.data(), string.size(), &handle), "no new string");
    return simcore::give(handle);
  }
  static std::string take(StableIValue value) {
    const std::unique_ptr<StringOpaque, decltype(&torch_delete_string)> handle(
        simcore::take<StringHandle>(value), torch_delete_string);
    size_t length = 0;
    const char* data = nullptr;
    succeed(torch_string_length(handle.get(), &length), "no length of a string");
    succeed(torch_string_c_str(handle.get(), &data), "no letters of a string");
    return {data, length};
  }
};

template <typename T>
StableIValue give_list(std::span<const T> items) {
  StableListHandle list = nullptr;
  succeed(torch_new_list_reserve_size(items.size(), &list), "no new list");
  for (const T& item : items) succeed(torch_list_push_back(list, give(item)), "no item of a list");
  return give(list);
}

template <typename T>
struct Value<std::vector<T>> {
  static StableIValue give(const std::vector<T>& items) { return give_list<T>(items); }
  static std::vector<T> take(StableIValue value) {
    const std::unique_ptr<StableListOpaque, decltype(&torch_delete_list)> list(
        simcore::take<StableListHandle>(value), torch_delete_list);
    size_t size = 0;
    succeed(torch_list_size(list.get(), &size), "no size of a list");
    std::vector<T> items;
    items.reserve(size);
    for (size_t i = 0; i < size; i++) {
      StableIValue item = 0;
      succeed(torch_list_get_item(list.get(), i, &item), "no item of a list");
      items.push_back(simcore::take<T>(item));
    }
    return items;
  }
};

template <>
struct Value<Shape> {  // taken as a vector, which holds the numbers
  static StableIValue give(const Shape& shape) { return give_list<int64_t>(shape); }
};

template <>
struct Value<std::nullopt_t> {
  static StableIValue give(std::nullopt_t) { return 0; }
};

// An optional argument is a pointer to its value, or null.
template <typename T>
struct Value<std::optional<T>> {
  static StableIValue give(const std::optional<T>& x) {
    return x ? simcore::give(new StableIValue(simcore::give(*x))) : 0;
  }
  static std::optional<T> take(StableIValue value) {
    const std::unique_ptr<StableIValue> inner(simcore::take<StableIValue*>(value));
    if (!inner) return std::nullopt;
    return simcore::take<T>(*inner);
  }
};

}  // namespace simcore
