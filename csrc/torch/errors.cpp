#include "torch/python.h"
#include "torch/tensor.h"

namespace simcore {

void refuse_type(const std::string& message) { throw pybind11::type_error(message); }
void refuse_value(const std::string& message) { throw pybind11::value_error(message); }

}  // namespace simcore
