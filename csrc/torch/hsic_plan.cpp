// The plan that HSIC would follow, for Python: simcore.plan_cka.
#include "cpu/hsic/plan.h"
#include "torch/hsic_checks.h"
#include "torch/python.h"

namespace simcore {
namespace {

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

PyObject* type_of_plans() {
  static PyStructSequence_Field fields[] = {
      {"method", "'gram' or 'feature'"},
      {"tile", "rows and columns of a Gram tile (gram) or of a product (feature)"},
      {"flops", "floating-point operations of the method"},
      {"flops_gram", nullptr},
      {"flops_feature", "infinite for the RBF kernel"},
      {"workspace_bytes", "the most that is allocated beyond the inputs"},
      {"max_memory", "the bound in force, in bytes"},
      {nullptr, nullptr},
  };
  static PyStructSequence_Desc plan = {"simcore.Plan",
                                       "What a grid would do: see simcore.plan_cka.", fields, 7};
  return reinterpret_cast<PyObject*>(PyStructSequence_NewType(&plan));
}

// Returns the plan as Python sees it.
PyObject* described(const cpu::HsicPlan& plan) {
  static PyObject* type = type_of_plans();
  if (type == nullptr) return nullptr;
  PyObject* values = Py_BuildValue(
      "(s(LL)dddLL)", method_name(plan.method), static_cast<long long>(plan.tile_rows),
      static_cast<long long>(plan.tile_cols), plan.flops, plan.flops_gram, plan.flops_feature,
      static_cast<long long>(plan.workspace_bytes), static_cast<long long>(plan.max_memory));
  if (values == nullptr) return nullptr;
  PyObject* result = PyObject_CallFunctionObjArgs(type, values, nullptr);
  Py_DECREF(values);
  return result;
}

// Reads a sequence of integers; false, with Python's error set, where it is none.
bool read(PyObject* sequence, std::vector<int64_t>& widths) {
  const Py_ssize_t count = PySequence_Size(sequence);
  for (Py_ssize_t i = 0; i < count; i++) {
    PyObject* item = PySequence_GetItem(sequence, i);
    if (item == nullptr) return false;
    widths.push_back(PyLong_AsLongLong(item));
    Py_DECREF(item);
    if (PyErr_Occurred()) return false;
  }
  return count >= 0;
}

PyObject* plan_from_python(PyObject* positional, PyObject* named) {
  static const char* names[] = {"n",      "widths_x", "widths_y",   "kernel", "bandwidth",
                                "method", "float64",  "max_memory", nullptr};
  long long n = 0, max_memory = 0;
  PyObject *x = nullptr, *y = nullptr;
  const char *kernel = nullptr, *method = nullptr;
  double bandwidth = 0;
  int float64 = 0;
  std::vector<int64_t> widths_x, widths_y;
  if (!PyArg_ParseTupleAndKeywords(positional, named, "LOOsdspL:plan_hsic",
                                   const_cast<char**>(names), &n, &x, &y, &kernel, &bandwidth,
                                   &method, &float64, &max_memory) ||
      !read(x, widths_x) || !read(y, widths_y))
    return nullptr;
  return described(plan_hsic(n, std::move(widths_x), std::move(widths_y), kernel, bandwidth, method,
                             float64 != 0, max_memory));
}

}  // namespace

PyMethodDef plan_method() { return method<plan_from_python>("plan_hsic", "See simcore.plan_cka."); }

}  // namespace simcore
