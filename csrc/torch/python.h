// What csrc takes of Python: its limited API, so that one extension serves every Python from the
// oldest on (setup.py). pybind11 gives the classes of errors that torch hands on to Python, and
// nothing else.
#pragma once

#pragma push_macro("TORCH_TARGET_VERSION")
#undef TORCH_TARGET_VERSION  // before torch 2.13 its copy of pybind11 is an error with it
#include <pybind11/detail/common.h>
#pragma pop_macro("TORCH_TARGET_VERSION")

#include <cstdint>
#include <new>
#include <stdexcept>

namespace simcore {

// Returns a reference to None.
inline PyObject* none() {
  Py_INCREF(Py_None);
  return Py_None;
}

using PythonFunction = PyObject* (*)(PyObject* positional, PyObject* named);

// A function as Python calls it: what C++ throws becomes an error of Python.
template <PythonFunction function>
PyObject* guarded(PyObject*, PyObject* positional, PyObject* named) {
  try {
    return function(positional, named);
  } catch (const pybind11::builtin_exception& error) {
    error.set_error();
  } catch (const std::invalid_argument& error) {
    PyErr_SetString(PyExc_ValueError, error.what());
  } catch (const std::bad_alloc&) {
    PyErr_NoMemory();
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
  }
  return nullptr;
}

template <PythonFunction function>
PyMethodDef method(const char* name, const char* text) {
  return {name, reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(guarded<function>)),
          METH_VARARGS | METH_KEYWORDS, text};
}

PyMethodDef plan_method();      // hsic_plan.cpp
PyMethodDef progress_method();  // progress.cpp

}  // namespace simcore
