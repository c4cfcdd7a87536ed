// The functions of simcore._C that are not operators.
#pragma once

#include <pybind11/pybind11.h>

namespace simcore {

void bind_plan(pybind11::module_& m);      // hsic_plan.cpp
void bind_progress(pybind11::module_& m);  // progress.cpp

}  // namespace simcore
