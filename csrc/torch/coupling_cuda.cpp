// simcore::affine_coupling and its backward on a CUDA device: checks, and the calls into csrc/cuda
// on the current stream.
#include <torch/library.h>

#include "cuda/coupling.h"
#include "torch/coupling_checks.h"
#include "torch/cuda_options.h"

namespace simcore {
namespace {

void check_on(const at::Tensor& tensor, const char* name, const at::Device& device) {
  TORCH_CHECK_VALUE(tensor.device() == device, name, ": wanted device ", device, " as x, got ",
                    tensor.device());
}

template <typename T>
void run_forward(const Coupling& coupling, at::Tensor& y, at::Tensor& log_det) {
  cuda::couple(coupling, y.mutable_data_ptr<T>(), log_det.mutable_data_ptr<T>(),
               c10::cuda::getCurrentCUDAStream());
}

std::tuple<at::Tensor, at::Tensor> affine_coupling_cuda(const at::Tensor& x,
                                                        const at::Tensor& params, double clamp,
                                                        bool inverse) {
  const Coupling coupling = coupling_of(x, params, clamp, inverse);
  const at::Device device = x.device();
  check_on(params, "params", device);
  const c10::cuda::CUDAGuard guard(device);
  const at::ScalarType dtype = coupling_type(x, params);
  at::Tensor y = empty_on(device, x.sizes(), dtype);
  at::Tensor log_det = empty_on(device, x.sizes().slice(0, x.dim() - 1), dtype);
  if (dtype == at::kDouble)
    run_forward<double>(coupling, y, log_det);
  else
    run_forward<float>(coupling, y, log_det);
  return {y, log_det};
}

template <typename T>
void run_backward(const Coupling& coupling, const at::Tensor& grad, const at::Tensor& grad_log_det,
                  at::Tensor& grad_x, at::Tensor& grad_params) {
  cuda::couple_gradients(coupling, rows_view(grad), rows_view(grad_log_det),
                         grad_x.mutable_data_ptr<T>(), grad_params.mutable_data_ptr<T>(),
                         c10::cuda::getCurrentCUDAStream());
}

std::tuple<at::Tensor, at::Tensor> affine_coupling_backward_cuda(const at::Tensor& grad,
                                                                 const at::Tensor& grad_log_det,
                                                                 const at::Tensor& kept,
                                                                 const at::Tensor& params,
                                                                 double clamp, bool inverse) {
  const Coupling coupling = coupling_of(kept, params, clamp, inverse);
  check_coupling_gradients(grad, grad_log_det, kept);
  const at::Device device = kept.device();
  check_on(params, "params", device);
  check_on(grad, "grad", device);
  check_on(grad_log_det, "grad_log_det", device);
  const c10::cuda::CUDAGuard guard(device);
  const at::ScalarType dtype = coupling_type(kept, params);
  at::Tensor grad_x = empty_on(device, kept.sizes(), dtype);
  at::Tensor grad_params = empty_on(device, params.sizes(), dtype);
  const at::Tensor of_rows = grad_log_det.unsqueeze(-1);
  if (dtype == at::kDouble)
    run_backward<double>(coupling, grad, of_rows, grad_x, grad_params);
  else
    run_backward<float>(coupling, grad, of_rows, grad_x, grad_params);
  return {grad_x, grad_params};
}

}  // namespace

TORCH_LIBRARY_IMPL(simcore, CUDA, m) {
  m.impl("affine_coupling", affine_coupling_cuda);
  m.impl("affine_coupling_backward", affine_coupling_backward_cuda);
}

}  // namespace simcore
