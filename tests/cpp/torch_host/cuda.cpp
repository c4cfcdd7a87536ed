// Stands in for torch's library of CUDA, in the host run of the adapters (csrc/torch/*_cuda.cpp):
// tensors are the host's, where there is one device and one stream.
#include "torch/abi.h"

extern "C" {

AOTITorchError aoti_torch_create_device_guard(int32_t, DeviceGuardHandle* guard) {
  *guard = nullptr;
  return 0;
}

AOTITorchError aoti_torch_delete_device_guard(DeviceGuardHandle) { return 0; }

AOTITorchError aoti_torch_get_current_cuda_stream(int32_t, void** stream) {
  *stream = nullptr;
  return 0;
}
}
