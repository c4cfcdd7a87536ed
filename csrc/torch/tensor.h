// Tensors, operators and errors, from the part of torch that is the same in every release from 2.11
// on: its stable ABI (setup.py, TORCH_TARGET_VERSION). Nothing else of torch is included.
#pragma once

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include <array>
#include <cstdint>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#ifndef STABLE_TORCH_ERROR_CODE_CHECK  // torch 2.11 and 2.12, whose errors have no reason
#define STABLE_TORCH_ERROR_CODE_CHECK TORCH_ERROR_CODE_CHECK
#endif

namespace simcore {

using torch::headeronly::ScalarType;
using torch::stable::Device;
using torch::stable::Tensor;
using Tensors = std::vector<Tensor>;
using Shape = torch::headeronly::IntHeaderOnlyArrayRef;

inline std::ostream& operator<<(std::ostream& stream, const Shape& shape) {
  stream << "[";
  for (size_t i = 0; i < shape.size(); i++) stream << (i ? ", " : "") << shape[i];
  return stream << "]";
}

inline std::ostream& operator<<(std::ostream& stream, const Device& device) {
  if (device.type() != torch::headeronly::DeviceType::CUDA) return stream << "cpu";
  return stream << "cuda:" << device.index();
}

template <typename... Parts>
std::string text(const Parts&... parts) {
  std::ostringstream stream;
  ((stream << parts), ...);
  return stream.str();
}

// What Python gets as a ValueError, by `boxed`; the kernels of csrc/cpu throw the same.
template <typename... Parts>
[[noreturn]] void refuse(const Parts&... parts) {
  throw std::invalid_argument(text(parts...));
}

// Errors of Python, which pybind11, through which torch calls operators, hands on (errors.cpp).
[[noreturn]] void refuse_type(const std::string& message);
[[noreturn]] void refuse_value(const std::string& message);
[[noreturn]] void refuse_unimplemented(const std::string& message);  // NotImplementedError
[[noreturn]] void refuse_memory(const std::string& message);         // torch.OutOfMemoryError

// The parts of a message are evaluated where the condition does not hold, and nowhere else.
#define SIMCORE_CHECK(condition, ...) ((condition) ? void() : ::simcore::refuse(__VA_ARGS__))
#define SIMCORE_CHECK_TYPE(condition, ...) \
  ((condition) ? void() : ::simcore::refuse_type(::simcore::text(__VA_ARGS__)))

template <typename T>
const T* const_data(const Tensor& tensor) {
  return static_cast<const T*>(tensor.const_data_ptr());
}

template <typename T>
T* mutable_data(const Tensor& tensor) {
  return static_cast<T*>(tensor.mutable_data_ptr());
}

// Returns an uninitialised, contiguous tensor of the host.
inline Tensor empty(Shape shape, ScalarType dtype) { return torch::stable::empty(shape, dtype); }

inline bool is_floating(ScalarType dtype) {
  return dtype == ScalarType::Double || dtype == ScalarType::Float || dtype == ScalarType::Half ||
         dtype == ScalarType::BFloat16;
}

namespace results {

template <typename Result>
struct Popped {
  static Result from(const StableIValue* stack) {
    return torch::stable::detail::to<Result>(stack[0]);
  }
};

template <typename... Parts>
struct Popped<std::tuple<Parts...>> {
  static std::tuple<Parts...> from(const StableIValue* stack) {
    return numbered(stack, std::index_sequence_for<Parts...>{});
  }
  template <size_t... I>
  static std::tuple<Parts...> numbered(const StableIValue* stack, std::index_sequence<I...>) {
    return {torch::stable::detail::to<Parts>(stack[I])...};
  }
};

}  // namespace results

// Calls an operator of torch with all arguments of its schema.
template <typename Result = Tensor, typename... Args>
Result call(const char* name, const char* overload, const Args&... args) {
  // At most three results, which may be more than arguments.
  std::array<StableIValue, sizeof...(Args) + 3> stack{};
  size_t count = 0;
  ((stack[count++] = torch::stable::detail::from(args)), ...);
  STABLE_TORCH_ERROR_CODE_CHECK(
      torch_call_dispatcher(name, overload, stack.data(), TORCH_ABI_VERSION));
  return results::Popped<Result>::from(stack.data());
}

// A function as torch calls it: with a stack of arguments, which its results replace.
template <auto function>
void boxed(StableIValue* stack, uint64_t arguments, uint64_t results) {
  try {
    TORCH_BOX(function)(stack, arguments, results);
  } catch (const std::invalid_argument& error) {
    refuse_value(error.what());
  }
}

}  // namespace simcore
