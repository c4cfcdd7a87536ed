#include "torch/python.h"
#include "torch/tensor.h"

namespace simcore {
namespace {

// An error that Python knows by its name, and pybind11 does not.
class Named : public pybind11::builtin_exception {
 public:
  Named(const char* module, const char* name, const std::string& message)
      : builtin_exception(message), module_(module), name_(name) {}
  void set_error() const override {
    PyObject* module = PyImport_ImportModule(module_);
    PyObject* type = module ? PyObject_GetAttrString(module, name_) : nullptr;
    if (type != nullptr) PyErr_SetString(type, what());
    Py_XDECREF(type);
    Py_XDECREF(module);
  }

 private:
  const char *module_, *name_;
};

}  // namespace

void refuse_type(const std::string& message) { throw pybind11::type_error(message); }
void refuse_value(const std::string& message) { throw pybind11::value_error(message); }

void refuse_unimplemented(const std::string& message) {
  throw Named("builtins", "NotImplementedError", message);
}

void refuse_memory(const std::string& message) {
  throw Named("torch", "OutOfMemoryError", message);
}

}  // namespace simcore
