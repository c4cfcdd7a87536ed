// The Python module simcore._C: what is no operator. It brings the library of operators along,
// which registers them, and does for it what needs Python (torch/host.h).
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <memory>

#include "torch/host.h"

namespace py = pybind11;

namespace simcore {
namespace {

// ---- errors, which fly through the library of operators and through torch, whose own copy of
// pybind11 knows no classes of this one but their base.

class Named : public py::builtin_exception {
 public:
  Named(const char* module, const char* name, const char* message)
      : builtin_exception(message), module_(module), name_(name) {}
  void set_error() const override {
    const py::object type = py::module_::import(module_).attr(name_);
    PyErr_SetString(type.ptr(), what());
  }

 private:
  const char *module_, *name_;
};

void refuse(Refusal kind, const char* message) {
  switch (kind) {
    case Refusal::value: throw py::value_error(message);
    case Refusal::type: throw py::type_error(message);
    case Refusal::unimplemented: throw Named("builtins", "NotImplementedError", message);
    case Refusal::memory: throw Named("torch", "OutOfMemoryError", message);
  }
}

// What Python has raised in this thread.
class Raised : public py::builtin_exception {
 public:
  Raised() : builtin_exception("Python raised an error") {}
  void set_error() const override { error_->restore(); }

 private:
  std::shared_ptr<py::error_already_set> error_ = std::make_shared<py::error_already_set>();
};

// ---- progress

// Each thread has its own callback, so that grids in several threads do not report to each other's.
thread_local PyObject* callback = nullptr;

void set_progress(const py::object& function) {
  PyObject* before = callback;
  callback = function.is_none() ? nullptr : function.inc_ref().ptr();
  Py_XDECREF(before);
}

void progress(double done) {
  if (!Py_IsInitialized()) return;
  const py::gil_scoped_acquire interpreter;
  if (callback != nullptr) {
    const auto result =
        py::reinterpret_steal<py::object>(PyObject_CallFunction(callback, "d", done));
    if (!result) throw Raised();
  }
  if (PyErr_CheckSignals() != 0) throw Raised();
}

}  // namespace

PYBIND11_MODULE(_C, m) {
  simcore_host()->progress = progress;
  simcore_host()->refuse = refuse;

  m.def(
      "build_info",
      [] {
        return py::dict(py::arg("version") = SIMCORE_VERSION, py::arg("compiler") = __VERSION__,
                        py::arg("flags") = SIMCORE_BUILD_FLAGS,
                        py::arg("cpu_isa") = instruction_set());
      },
      "See simcore.build_info.");
  m.def("free_memory", free_memory, "See simcore.free_memory.");
  m.def("memory_bound", memory_bound,
        "The bytes that a bound of 0 (a quarter of the free memory) or more stands for.");
  m.def("set_progress", set_progress,
        "Calls function(share) between tiles of operators run on this thread; None stops that.");

  const py::object plan_type = py::module_::import("collections")
                                   .attr("namedtuple")("Plan",
                                                       "method tile flops flops_gram flops_feature "
                                                       "workspace_bytes max_memory");
  m.attr("Plan") = plan_type;
  m.def(
      "plan_hsic",
      [plan_type](int64_t n, std::vector<int64_t> widths_x, std::vector<int64_t> widths_y,
                  const std::string& kernel, double bandwidth, const std::string& method,
                  bool float64, int64_t max_memory) {
        const cpu::HsicPlan plan =
            plan_hsic(n, std::move(widths_x), std::move(widths_y), kernel.c_str(), bandwidth,
                      method.c_str(), float64, max_memory);
        return plan_type(name_of(plan.method), py::make_tuple(plan.tile_rows, plan.tile_cols),
                         plan.flops, plan.flops_gram, plan.flops_feature, plan.workspace_bytes,
                         plan.max_memory);
      },
      py::arg("n"), py::arg("widths_x"), py::arg("widths_y"), py::arg("kernel"),
      py::arg("bandwidth"), py::arg("method"), py::arg("float64"), py::arg("max_memory"),
      "See simcore.plan_cka.");
}

}  // namespace simcore
