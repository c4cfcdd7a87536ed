// simcore::affine_coupling and its backward on a CUDA device: the calls into csrc/cuda on the
// current stream.
#include <torch/library.h>

#include "cuda/coupling/coupling.h"
#include "torch/coupling_op.h"
#include "torch/runtime_cuda.h"

namespace simcore {
namespace {

void check_on(const at::Tensor& tensor, const char* name, const at::Device& device) {
  TORCH_CHECK_VALUE(tensor.device() == device, name, ": wanted device ", device, " as x, got ",
                    tensor.device());
}

class OnCuda {
 public:
  explicit OnCuda(const at::Tensor& x) : guard_(x.device()) {}

  at::Tensor empty(at::IntArrayRef shape, at::ScalarType dtype) const {
    return empty_on(guard_.current_device(), shape, dtype);
  }
  template <typename T>
  void couple(const Coupling& coupling, T* y, T* log_det) const {
    cuda::couple(coupling, y, log_det, c10::cuda::getCurrentCUDAStream());
  }
  template <typename T>
  void couple_gradients(const Coupling& coupling, const RowsView& grad,
                        const RowsView& grad_log_det, T* grad_x, T* grad_params) const {
    cuda::couple_gradients(coupling, grad, grad_log_det, grad_x, grad_params,
                           c10::cuda::getCurrentCUDAStream());
  }

 private:
  c10::cuda::CUDAGuard guard_;
};

std::tuple<at::Tensor, at::Tensor> affine_coupling_cuda(const at::Tensor& x,
                                                        const at::Tensor& params, double clamp,
                                                        bool inverse) {
  check_on(params, "params", x.device());  // before the device guard, which CPU tensors do not have
  return couple_on(OnCuda(x), x, params, clamp, inverse);
}

std::tuple<at::Tensor, at::Tensor> affine_coupling_backward_cuda(const at::Tensor& grad,
                                                                 const at::Tensor& grad_log_det,
                                                                 const at::Tensor& kept,
                                                                 const at::Tensor& params,
                                                                 double clamp, bool inverse) {
  check_on(params, "params", kept.device());
  check_on(grad, "grad", kept.device());
  check_on(grad_log_det, "grad_log_det", kept.device());
  return couple_gradients_on(OnCuda(kept), grad, grad_log_det, kept, params, clamp, inverse);
}

}  // namespace

TORCH_LIBRARY_IMPL(simcore, CUDA, m) {
  m.impl("affine_coupling", affine_coupling_cuda);
  m.impl("affine_coupling_backward", affine_coupling_backward_cuda);
}

}  // namespace simcore
