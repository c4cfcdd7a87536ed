#include "torch/progress.h"

#include <memory>

#include "torch/python.h"

namespace simcore {
namespace {

// Each thread has its own callback, so that grids in several threads do not report to each other's.
thread_local PyObject* callback = nullptr;

// This thread may use Python as long as this lives.
class Interpreter {
 public:
  Interpreter() : state_(PyGILState_Ensure()) {}
  ~Interpreter() { PyGILState_Release(state_); }
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;

 private:
  PyGILState_STATE state_;
};

// What Python has raised in this thread, on its way through C++.
class Raised : public pybind11::builtin_exception {
 public:
  Raised() : builtin_exception("Python raised an error"), parts_(std::make_shared<Parts>()) {
    PyErr_Fetch(&parts_->type, &parts_->value, &parts_->trace);
  }
  void set_error() const override {
    PyErr_Restore(parts_->type, parts_->value, parts_->trace);
    parts_->type = parts_->value = parts_->trace = nullptr;
  }

 private:
  struct Parts {
    PyObject *type = nullptr, *value = nullptr, *trace = nullptr;
    Parts() = default;
    Parts(const Parts&) = delete;
    Parts& operator=(const Parts&) = delete;
    ~Parts() {
      if (type == nullptr) return;
      const Interpreter interpreter;
      for (PyObject* part : {type, value, trace}) Py_XDECREF(part);
    }
  };
  std::shared_ptr<Parts> parts_;
};

PyObject* set_progress(PyObject* positional, PyObject*) {
  PyObject* function = nullptr;
  if (!PyArg_ParseTuple(positional, "O:set_progress", &function)) return nullptr;
  PyObject* before = callback;
  callback = function == Py_None ? nullptr : function;
  Py_XINCREF(callback);
  Py_XDECREF(before);
  return none();
}

}  // namespace

void report_progress(double done) {
  if (!Py_IsInitialized()) return;
  const Interpreter interpreter;
  if (callback != nullptr) {
    PyObject* result = PyObject_CallFunction(callback, "d", done);
    if (result == nullptr) throw Raised();
    Py_DECREF(result);
  }
  if (PyErr_CheckSignals() != 0) throw Raised();
}

PyMethodDef progress_method() {
  return method<set_progress>(
      "set_progress",
      "Calls function(share) between tiles of operators run on this thread; None stops that.");
}

}  // namespace simcore
