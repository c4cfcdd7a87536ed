// simcore::affine_coupling and its backward on a CUDA device: the calls into csrc/cuda on the
// current stream.

#include "cuda/coupling/coupling.h"
#include "torch/coupling_op.h"
#include "torch/runtime_cuda.h"

namespace simcore {
namespace {

void check_on(const Tensor& tensor, const char* name, const Device& device) {
  SIMCORE_CHECK(tensor.device() == device, name, ": wanted device ", device, " as x, got ",
                tensor.device());
}

class OnCuda {
 public:
  explicit OnCuda(const Tensor& x) : device_(x.device()), guard_(device_.index()) {}

  Tensor empty(Shape shape, ScalarType dtype) const { return empty_on(device_, shape, dtype); }
  template <typename T>
  void couple(const Coupling& coupling, T* y, T* log_det) const {
    cuda::couple(coupling, y, log_det, current_stream(device_));
  }
  template <typename T>
  void couple_gradients(const Coupling& coupling, const RowsView& grad,
                        const RowsView& grad_log_det, T* grad_x, T* grad_params) const {
    cuda::couple_gradients(coupling, grad, grad_log_det, grad_x, grad_params,
                           current_stream(device_));
  }

 private:
  Device device_;
  DeviceGuard guard_;
};

std::tuple<Tensor, Tensor> affine_coupling_cuda(const Tensor& x, const Tensor& params, double clamp,
                                                bool inverse) {
  check_on(params, "params", x.device());  // before the device guard, which CPU tensors do not have
  return couple_on(OnCuda(x), x, params, clamp, inverse);
}

std::tuple<Tensor, Tensor> affine_coupling_backward_cuda(const Tensor& grad,
                                                         const Tensor& grad_log_det,
                                                         const Tensor& kept, const Tensor& params,
                                                         double clamp, bool inverse) {
  check_on(params, "params", kept.device());
  check_on(grad, "grad", kept.device());
  check_on(grad_log_det, "grad_log_det", kept.device());
  return couple_gradients_on(OnCuda(kept), grad, grad_log_det, kept, params, clamp, inverse);
}

}  // namespace

const Library functions("CUDA", [](const Library& m) {
  m.impl("affine_coupling", boxed<affine_coupling_cuda>);
  m.impl("affine_coupling_backward", boxed<affine_coupling_backward_cuda>);
});

}  // namespace simcore
