// simcore::affine_coupling and its backward on the CPU: the calls into csrc/cpu.
#include "cpu/coupling/coupling.h"
#include "torch/coupling_op.h"
#include "torch/torch_runtime.h"

namespace simcore {
namespace {

struct OnCpu {
  Tensor empty(Shape shape, ScalarType dtype) const { return empty_in_huge_pages(shape, dtype); }
  template <typename T>
  void couple(const Coupling& coupling, T* y, T* log_det) const {
    cpu::couple(coupling, y, log_det, torch_runtime());
  }
  template <typename T>
  void couple_gradients(const Coupling& coupling, const RowsView& grad,
                        const RowsView& grad_log_det, T* grad_x, T* grad_params) const {
    cpu::couple_gradients(coupling, grad, grad_log_det, grad_x, grad_params, torch_runtime());
  }
};

std::tuple<Tensor, Tensor> affine_coupling_cpu(const Tensor& x, const Tensor& params, double clamp,
                                               bool inverse) {
  return couple_on(OnCpu{}, x, params, clamp, inverse);
}

std::tuple<Tensor, Tensor> affine_coupling_backward_cpu(const Tensor& grad,
                                                        const Tensor& grad_log_det,
                                                        const Tensor& kept, const Tensor& params,
                                                        double clamp, bool inverse) {
  return couple_gradients_on(OnCpu{}, grad, grad_log_det, kept, params, clamp, inverse);
}

}  // namespace

const Library coupling_functions("CPU", [](const Library& m) {
  m.impl("affine_coupling", boxed<affine_coupling_cpu>);
  m.impl("affine_coupling_backward", boxed<affine_coupling_backward_cpu>);
});

}  // namespace simcore
