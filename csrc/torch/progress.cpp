#include "torch/progress.h"

#include <pybind11/pybind11.h>

#include "torch/module.h"

namespace simcore {
namespace {

// Each thread has its own callback, so that grids in several threads do not report to each other's.
thread_local PyObject* callback = nullptr;

}  // namespace

void report_progress(double done) {
  if (!Py_IsInitialized()) return;
  pybind11::gil_scoped_acquire gil;
  if (callback != nullptr) {
    PyObject* result = PyObject_CallFunction(callback, "d", done);
    if (result == nullptr) throw pybind11::error_already_set();
    Py_DECREF(result);
  }
  if (PyErr_CheckSignals() != 0) throw pybind11::error_already_set();
}

void bind_progress(pybind11::module_& m) {
  m.def(
      "set_progress",
      [](const pybind11::object& function) {
        Py_XDECREF(callback);
        callback = function.is_none() ? nullptr : function.inc_ref().ptr();
      },
      "Calls function(share) between tiles of operators run on this thread; None stops that.");
}

}  // namespace simcore
