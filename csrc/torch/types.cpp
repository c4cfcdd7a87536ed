#include "torch/types.h"

#include "torch/errors.h"

namespace simcore {
namespace {

struct Known {
  const char* name;
  int32_t (*number)();
};

#define SIMCORE_ENTRY(name, number) {#name, number},
constexpr Known kDtypes[] = {SIMCORE_DTYPES(SIMCORE_ENTRY)};  // in the order of ScalarType
#undef SIMCORE_ENTRY

}  // namespace

int32_t number_of(ScalarType dtype) { return kDtypes[size_t(dtype)].number(); }

ScalarType dtype_of_number(int32_t number) {
  for (const Known& dtype : kDtypes)
    if (dtype.number() == number) return ScalarType(&dtype - kDtypes);
  refuse_type(text("wanted a dtype of torch's stable ABI, got number ", number));
}

std::ostream& operator<<(std::ostream& stream, ScalarType dtype) {
  return stream << kDtypes[size_t(dtype)].name;
}

std::ostream& operator<<(std::ostream& stream, const Device& device) {
  if (device.type() != aoti_torch_device_type_cuda()) return stream << "cpu";
  return stream << "cuda:" << device.index();
}

std::ostream& operator<<(std::ostream& stream, const Shape& shape) {
  stream << "[";
  for (size_t i = 0; i < shape.size(); i++) stream << (i ? ", " : "") << shape[i];
  return stream << "]";
}

}  // namespace simcore
