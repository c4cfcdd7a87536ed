// The plan that HSIC would follow, for Python: simcore.plan_cka.
#include <pybind11/stl.h>

#include <sstream>

#include "cpu/hsic/plan.h"
#include "torch/hsic_checks.h"
#include "torch/module.h"

namespace simcore {
namespace {

namespace py = pybind11;

cpu::HsicPlan plan_hsic(int64_t n, std::vector<int64_t> widths_x, std::vector<int64_t> widths_y,
                        const std::string& kernel, double bandwidth, const std::string& method,
                        bool float64, int64_t max_memory) {
  cpu::HsicRequest request;
  request.n = n;
  request.widths_x = std::move(widths_x);
  request.widths_y = std::move(widths_y);
  request.kernel = parse_kernel(kernel);
  request.bandwidth = bandwidth;
  request.method = parse_method(method);
  request.float64 = float64;
  request.threads = int(torch::stable::get_num_threads());
  request.max_memory = max_memory;
  return cpu::make_plan(request);
}

std::string describe(const cpu::HsicPlan& plan) {
  std::ostringstream text;
  text << "Plan(method='" << method_name(plan.method) << "', tile=(" << plan.tile_rows << ", "
       << plan.tile_cols << "), flops=" << plan.flops << ", flops_gram=" << plan.flops_gram
       << ", flops_feature=" << plan.flops_feature << ", workspace_bytes=" << plan.workspace_bytes
       << ", max_memory=" << plan.max_memory << ")";
  return text.str();
}

}  // namespace

void bind_plan(py::module_& m) {
  py::class_<cpu::HsicPlan>(m, "Plan", "What a grid would do: see simcore.plan_cka.")
      .def_property_readonly(
          "method", [](const cpu::HsicPlan& p) { return method_name(p.method); },
          "'gram' or 'feature'")
      .def_property_readonly(
          "tile", [](const cpu::HsicPlan& p) { return std::tuple(p.tile_rows, p.tile_cols); },
          "rows and columns of a Gram tile (gram) or of a product (feature)")
      .def_readonly("flops", &cpu::HsicPlan::flops, "floating-point operations of the method")
      .def_readonly("flops_gram", &cpu::HsicPlan::flops_gram)
      .def_readonly("flops_feature", &cpu::HsicPlan::flops_feature, "infinite for the RBF kernel")
      .def_readonly("workspace_bytes", &cpu::HsicPlan::workspace_bytes,
                    "the most that is allocated beyond the inputs")
      .def_readonly("max_memory", &cpu::HsicPlan::max_memory, "the bound in force, in bytes")
      .def("__repr__", describe);
  m.def("plan_hsic", plan_hsic, py::arg("n"), py::arg("widths_x"), py::arg("widths_y"),
        py::arg("kernel"), py::arg("bandwidth"), py::arg("method"), py::arg("float64"),
        py::arg("max_memory"));
}

}  // namespace simcore
