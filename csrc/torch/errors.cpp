#include "torch/errors.h"

#include "torch/host.h"

namespace simcore {
namespace {

[[noreturn]] void raise(Refusal kind, const std::string& message) {
  if (const auto refuse = simcore_host()->refuse) refuse(kind, message.c_str());
  throw std::runtime_error(message);  // in a process without Python
}

}  // namespace

void refuse_type(const std::string& message) { raise(Refusal::type, message); }
void refuse_value(const std::string& message) { raise(Refusal::value, message); }
void refuse_unimplemented(const std::string& message) { raise(Refusal::unimplemented, message); }
void refuse_memory(const std::string& message) { raise(Refusal::memory, message); }

}  // namespace simcore
