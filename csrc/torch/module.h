#pragma once

#include <pybind11/pybind11.h>

namespace simcore {

void bind_progress(pybind11::module_& m);

}  // namespace simcore
