// The Python module simcore._C: its functions that are not operators. Importing the module
// registers the operators.
#include "cpu/base/memory.h"
#include "cpu/isa/isa.h"
#include "torch/python.h"

namespace simcore {
namespace {

PyObject* build_info(PyObject*, PyObject*) {
  return Py_BuildValue("{s:s,s:s,s:s,s:s}", "version", SIMCORE_VERSION, "compiler", __VERSION__,
                       "flags", SIMCORE_BUILD_FLAGS, "cpu_isa", cpu::isa_name());
}

PyObject* free_memory(PyObject*, PyObject*) { return PyLong_FromLongLong(cpu::free_memory()); }

PyObject* memory_bound(PyObject* positional, PyObject*) {
  long long bound = 0;
  if (!PyArg_ParseTuple(positional, "L:memory_bound", &bound)) return nullptr;
  return PyLong_FromLongLong(cpu::memory_bound(bound));
}

PyModuleDef definition(PyMethodDef* methods) {
  return {.m_base = PyModuleDef_HEAD_INIT,
          .m_name = "_C",
          .m_doc = nullptr,
          .m_size = -1,
          .m_methods = methods,
          .m_slots = nullptr,
          .m_traverse = nullptr,
          .m_clear = nullptr,
          .m_free = nullptr};
}

}  // namespace
}  // namespace simcore

PyMODINIT_FUNC PyInit__C() {
  using simcore::method;
  static PyMethodDef methods[] = {
      simcore::plan_method(),
      simcore::progress_method(),
      method<simcore::build_info>("build_info", "See simcore.build_info."),
      method<simcore::free_memory>("free_memory", "See simcore.free_memory."),
      method<simcore::memory_bound>(
          "memory_bound",
          "The bytes that a bound of 0 (a quarter of the free memory) or more stands for."),
      {nullptr, nullptr, 0, nullptr},
  };
  static PyModuleDef module = simcore::definition(methods);
  return PyModule_Create(&module);
}
