#include "torch/tensor.h"

namespace simcore {

Library::Library(const char* dispatch_key, void (*fill)(const Library&)) {
  succeed(dispatch_key == nullptr
              ? aoti_torch_library_init_def("simcore", __FILE__, __LINE__, &handle_)
              : aoti_torch_library_init_impl("simcore", dispatch_key, __FILE__, __LINE__, &handle_),
          "no library of operators");
  fill(*this);
}

Library::~Library() { aoti_torch_delete_library_object(handle_); }

void Library::def(const char* schema) const {
  succeed(aoti_torch_library_def(handle_, schema), schema);
}

void Library::impl(const char* name, BoxedFunction function) const {
  succeed(torch_library_impl(handle_, name, function, kTorchAbi), name);
}

}  // namespace simcore
