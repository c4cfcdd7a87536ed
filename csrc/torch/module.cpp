// The Python module simcore._C: what is not an operator. Importing it registers the operators.
#include <ATen/Parallel.h>
#include <pybind11/stl.h>
#include <torch/version.h>

#include "cpu/base/memory.h"
#include "cpu/isa/isa.h"
#include "torch/module.h"
#include "torch/options.h"

namespace simcore {
namespace {

namespace py = pybind11;

cpu::Plan plan_hsic(int64_t n, std::vector<int64_t> widths_x, std::vector<int64_t> widths_y,
                    const std::string& kernel, double bandwidth, const std::string& method,
                    bool float64, int64_t max_memory) {
  cpu::PlanRequest request;
  request.n = n;
  request.widths_x = std::move(widths_x);
  request.widths_y = std::move(widths_y);
  request.kernel = parse_kernel(kernel);
  request.bandwidth = bandwidth;
  request.method = parse_method(method);
  request.float64 = float64;
  request.threads = at::get_num_threads();
  request.max_memory = max_memory;
  return cpu::make_plan(request);
}

std::string describe(const cpu::Plan& plan) {
  std::ostringstream text;
  text << "Plan(method='" << method_name(plan.method) << "', tile=(" << plan.tile_rows << ", "
       << plan.tile_cols << "), flops=" << plan.flops << ", flops_gram=" << plan.flops_gram
       << ", flops_feature=" << plan.flops_feature << ", workspace_bytes=" << plan.workspace_bytes
       << ", max_memory=" << plan.max_memory << ")";
  return text.str();
}

void bind_plan(py::module_& m) {
  py::class_<cpu::Plan>(m, "Plan", "What a grid would do: see simcore.plan_cka.")
      .def_property_readonly(
          "method", [](const cpu::Plan& p) { return method_name(p.method); }, "'gram' or 'feature'")
      .def_property_readonly(
          "tile", [](const cpu::Plan& p) { return std::tuple(p.tile_rows, p.tile_cols); },
          "rows and columns of a Gram tile (gram) or of a product (feature)")
      .def_readonly("flops", &cpu::Plan::flops, "floating-point operations of the method")
      .def_readonly("flops_gram", &cpu::Plan::flops_gram)
      .def_readonly("flops_feature", &cpu::Plan::flops_feature, "infinite for the RBF kernel")
      .def_readonly("workspace_bytes", &cpu::Plan::workspace_bytes,
                    "the most that is allocated beyond the inputs")
      .def_readonly("max_memory", &cpu::Plan::max_memory, "the bound in force, in bytes")
      .def("__repr__", describe);
  m.def("plan_hsic", plan_hsic, py::arg("n"), py::arg("widths_x"), py::arg("widths_y"),
        py::arg("kernel"), py::arg("bandwidth"), py::arg("method"), py::arg("float64"),
        py::arg("max_memory"));
}

// "8.0;9.0+PTX" as a list.
py::list split(const std::string& names) {
  py::list list;
  std::istringstream stream(names);
  for (std::string name; std::getline(stream, name, ';');) list.append(name);
  return list;
}

py::dict build_info() {
  py::dict info;
  info["version"] = SIMCORE_VERSION;
  info["torch"] = TORCH_VERSION;
  info["compiler"] = __VERSION__;
  info["flags"] = SIMCORE_BUILD_FLAGS;
  info["cpu_isa"] = cpu::isa_name();
  info["cuda"] = bool(SIMCORE_WITH_CUDA);
  info["cuda_architectures"] = split(SIMCORE_CUDA_ARCHITECTURES);
  return info;
}

}  // namespace
}  // namespace simcore

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  simcore::bind_plan(m);
  simcore::bind_progress(m);
  m.def("build_info", simcore::build_info);
  m.def("free_memory", [] { return simcore::cpu::free_memory(); }, "See simcore.free_memory.");
  m.def("memory_bound", simcore::cpu::memory_bound, pybind11::arg("max_memory"),
        "The bytes that a bound of 0 (a quarter of the free memory) or more stands for.");
}
