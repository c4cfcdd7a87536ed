// The Python module of the CUDA kernels: simcore._cuda in a build from source, and
// simcore_cuda._cuda in the wheel simcore-cuda. Importing it registers the kernels of operators
// that simcore._C has declared.
#include "torch/python.h"

PyMODINIT_FUNC PyInit__cuda() {
  static PyModuleDef definition = {.m_base = PyModuleDef_HEAD_INIT,
                                   .m_name = "_cuda",
                                   .m_doc = nullptr,
                                   .m_size = -1,
                                   .m_methods = nullptr,
                                   .m_slots = nullptr,
                                   .m_traverse = nullptr,
                                   .m_clear = nullptr,
                                   .m_free = nullptr};
  PyObject* module = PyModule_Create(&definition);
  if (module != nullptr &&
      PyModule_AddStringConstant(module, "ARCHITECTURES", SIMCORE_CUDA_ARCHITECTURES) != 0)
    Py_CLEAR(module);
  return module;
}
