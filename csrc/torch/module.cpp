// The Python module simcore._C: its functions that are not operators. Importing the module
// registers the operators.
#include <pybind11/pybind11.h>

#include <sstream>
#include <string>

#include "cpu/base/memory.h"
#include "cpu/isa/isa.h"
#include "torch/module.h"

namespace simcore {
namespace {

namespace py = pybind11;

// Returns "8.0;9.0+PTX" as a list.
py::list split(const std::string& names) {
  py::list list;
  std::istringstream stream(names);
  for (std::string name; std::getline(stream, name, ';');) list.append(name);
  return list;
}

py::dict build_info() {
  py::dict info;
  info["version"] = SIMCORE_VERSION;
  info["compiler"] = __VERSION__;
  info["flags"] = SIMCORE_BUILD_FLAGS;
  info["cpu_isa"] = cpu::isa_name();
  info["cuda"] = bool(SIMCORE_WITH_CUDA);
  info["cuda_architectures"] = split(SIMCORE_CUDA_ARCHITECTURES);
  return info;
}

}  // namespace
}  // namespace simcore

PYBIND11_MODULE(_C, m) {
  simcore::bind_plan(m);
  simcore::bind_progress(m);
  m.def("build_info", simcore::build_info);
  m.def("free_memory", [] { return simcore::cpu::free_memory(); }, "See simcore.free_memory.");
  m.def("memory_bound", simcore::cpu::memory_bound, pybind11::arg("max_memory"),
        "The bytes that a bound of 0 (a quarter of the free memory) or more stands for.");
}
