// What the adapters take of torch: tensors, its operations on them, and the registration of
// operators.
#pragma once

#include <array>
#include <tuple>
#include <utility>

#include "torch/values.h"

namespace simcore {

// ---- calls of torch's operators

// What lies on a stack: one value, or the values of a tuple.
template <typename Result>
struct Stacked {
  static Result taken(const StableIValue* stack) { return take<Result>(stack[0]); }
  static void given(const Result& result, StableIValue* stack) { stack[0] = give(result); }
  static constexpr size_t count = 1;
};

template <typename... Parts>
struct Stacked<std::tuple<Parts...>> {
  using Tuple = std::tuple<Parts...>;
  static Tuple taken(const StableIValue* stack) {
    return [&]<size_t... I>(std::index_sequence<I...>) {
      return Tuple{take<Parts>(stack[I])...};
    }(std::index_sequence_for<Parts...>{});
  }
  static void given(const Tuple& results, StableIValue* stack) {
    std::apply([&](const Parts&... part) { ((*stack++ = give(part)), ...); }, results);
  }
  static constexpr size_t count = sizeof...(Parts);
};

// Calls an operator of torch with all arguments of its schema.
template <typename Result = Tensor, typename... Args>
Result call(const char* name, const char* overload, const Args&... args) {
  std::array<StableIValue, std::max(sizeof...(Args), Stacked<Result>::count)> stack{give(args)...};
  succeed(torch_call_dispatcher(name, overload, stack.data(), kTorchAbi), name);
  return Stacked<Result>::taken(stack.data());
}

// ---- operations on tensors

// Returns an uninitialised, contiguous tensor, of the host without a device.
inline Tensor empty(Shape shape, ScalarType dtype, std::optional<Device> device = std::nullopt) {
  return call("aten::empty", "memory_format", shape, std::optional(dtype), std::nullopt, device,
              std::nullopt, std::nullopt);
}

inline Tensor contiguous(const Tensor& tensor) {
  const int64_t format = aoti_torch_memory_format_contiguous_format();
  return call("aten::contiguous", "", tensor, format);
}

inline Tensor converted(const Tensor& tensor, std::optional<ScalarType> dtype,
                        std::optional<Device> device) {
  return call("aten::to", "dtype_layout", tensor, dtype, std::nullopt, device, std::nullopt, false,
              false, std::nullopt);
}

// Return the tensor itself where it is of that dtype, or on that device.
inline Tensor to(const Tensor& tensor, ScalarType dtype) { return converted(tensor, dtype, {}); }
inline Tensor to(const Tensor& tensor, const Device& device) {
  return converted(tensor, {}, device);
}

inline Tensor clone(const Tensor& tensor) { return call("aten::clone", "", tensor, std::nullopt); }

inline void copy_into(const Tensor& target, const Tensor& source) {
  call("aten::copy_", "", target, source, false);
}

// Returns a view of the places [begin, begin + length) of a dimension.
inline Tensor narrow(const Tensor& tensor, int64_t dim, int64_t begin, int64_t length) {
  return call("aten::narrow", "", tensor, dim, begin, length);
}

inline int number_of_threads() {
  uint32_t threads = 0;
  succeed(torch_get_num_threads(&threads), "no number of threads");
  return int(threads);
}

// ---- registration of operators

template <typename T>
struct HeldAs {
  using type = std::remove_cvref_t<T>;
};
template <>
struct HeldAs<Shape> {
  using type = std::vector<int64_t>;
};

template <auto function>
struct Boxed;

template <typename Result, typename... Args, Result (*function)(Args...)>
struct Boxed<function> {
  static void call(StableIValue* stack, uint64_t arguments, uint64_t results) {
    if (arguments != sizeof...(Args) || results != Stacked<Result>::count)
      throw std::logic_error("simcore: an operator has another schema than its function");
    const auto held = Stacked<std::tuple<typename HeldAs<Args>::type...>>::taken(stack);
    Stacked<Result>::given(std::apply(function, held), stack);
  }
};

// A function as torch calls it: with a stack of arguments, which its results replace.
template <auto function>
void boxed(StableIValue* stack, uint64_t arguments, uint64_t results) {
  try {
    Boxed<function>::call(stack, arguments, results);
  } catch (const std::invalid_argument& error) {
    refuse_value(error.what());
  }
}

using BoxedFunction = void (*)(StableIValue* stack, uint64_t arguments, uint64_t results);

// The operators of simcore that `fill` declares, or with a dispatch key their functions for it.
class Library {
 public:
  Library(const char* dispatch_key, void (*fill)(const Library&));
  ~Library();
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  void def(const char* schema) const;
  void impl(const char* name, BoxedFunction function) const;

 private:
  TorchLibraryHandle handle_ = nullptr;
};

}  // namespace simcore
