// Errors: those of the user, which Python gets by their class, and failures of torch.
#pragma once

#include <cstdint>
#include <sstream>
#include <stdexcept>
#include <string>

namespace simcore {

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

// Errors of Python, which torch, when it called the operator, hands on (torch/host.h).
[[noreturn]] void refuse_type(const std::string& message);
[[noreturn]] void refuse_value(const std::string& message);
[[noreturn]] void refuse_unimplemented(const std::string& message);  // NotImplementedError
[[noreturn]] void refuse_memory(const std::string& message);         // torch.OutOfMemoryError

// Throws std::runtime_error where a function of torch's stable ABI says that it has failed.
inline void succeed(int32_t code, const char* what) {
  if (code != 0) throw std::runtime_error(text("torch failed: ", what));
}

// The parts of a message are evaluated where the condition does not hold, and nowhere else.
#define SIMCORE_CHECK(condition, ...) ((condition) ? void() : ::simcore::refuse(__VA_ARGS__))
#define SIMCORE_CHECK_TYPE(condition, ...) \
  ((condition) ? void() : ::simcore::refuse_type(::simcore::text(__VA_ARGS__)))

}  // namespace simcore
