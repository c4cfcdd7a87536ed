// The derivative of simcore::affine_coupling, which is simcore::affine_coupling_backward; the
// second derivative is in simcore/_ops/coupling.py. The first is in C++ because a stack of
// couplings calls it at every step of a training: neither recording nor running it goes through the
// interpreter.
//
// A torch::autograd::Function supports neither forward mode nor torch.func. For these two, both
// directions are composed of torch's own operations, which support them.
#include <ATen/TensorOperators.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <optional>

#include "torch/coupling_checks.h"

namespace simcore {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using Tensors = std::tuple<at::Tensor, at::Tensor>;

Tensors call_coupling(const at::Tensor& x, const at::Tensor& params, double clamp, bool inverse) {
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow("simcore::affine_coupling", "")
                             .typed<Tensors(const at::Tensor&, const at::Tensor&, double, bool)>();
  return op.call(x, params, clamp, inverse);
}

Tensors call_backward(const variable_list& grads, const variable_list& kept_and_params,
                      double clamp, bool inverse) {
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow("simcore::affine_coupling_backward", "")
                             .typed<Tensors(const at::Tensor&, const at::Tensor&, const at::Tensor&,
                                            const at::Tensor&, double, bool)>();
  return op.call(grads[0], grads[1], kept_and_params[0], kept_and_params[1], clamp, inverse);
}

// Returns true if a tensor has a tangent, or belongs to a transform of torch.func.
bool is_followed(std::initializer_list<at::Tensor> tensors) {
  const c10::DispatchKeySet wrapped{c10::DispatchKey::FuncTorchGradWrapper,
                                    c10::DispatchKey::FuncTorchBatched};
  for (const at::Tensor& tensor : tensors)
    if (tensor.key_set().has_any(wrapped) || tensor._fw_grad(/*level=*/0).defined()) return true;
  return false;
}

// s, t and ds / ds_raw of core/math/coupling_math.h.
std::tuple<at::Tensor, at::Tensor, at::Tensor> composed_clamp(const at::Tensor& params,
                                                              double clamp, at::ScalarType dtype) {
  const std::vector<at::Tensor> halves = params.to(dtype).chunk(2, -1);
  const at::Tensor tanh = (halves[0] / clamp).tanh();
  return {clamp * tanh, halves[1], 1 - tanh.square()};
}

Tensors composed_coupling(const at::Tensor& x, const at::Tensor& params, double clamp,
                          bool inverse) {
  const at::ScalarType dtype = coupling_type(x, params);
  const auto [s, t, slope] = composed_clamp(params, clamp, dtype);
  if (inverse) return {(x.to(dtype) - t) * (-s).exp(), -s.sum(-1)};
  return {x.to(dtype) * s.exp() + t, s.sum(-1)};
}

Tensors composed_backward(const at::Tensor& grad_y, const at::Tensor& grad_log_det,
                          const at::Tensor& kept, const at::Tensor& params, double clamp,
                          bool inverse) {
  const auto [s, t, slope] = composed_clamp(params, clamp, coupling_type(kept, params));
  const at::Tensor grad_x = grad_y * (inverse ? -s : s).exp();
  const at::Tensor of_row = grad_log_det.unsqueeze(-1);
  if (inverse) return {grad_x, at::cat({-(grad_y * kept + of_row) * slope, -grad_x}, -1)};
  return {grad_x, at::cat({(grad_x * kept + of_row) * slope, grad_y}, -1)};
}

struct AffineCoupling : torch::autograd::Function<AffineCoupling> {
  static variable_list forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& params,
                               double clamp, bool inverse) {
    const at::AutoDispatchBelowADInplaceOrView guard;
    const auto [y, log_det] = call_coupling(x, params, clamp, inverse);
    ctx->save_for_backward({inverse ? y : x, params});
    ctx->saved_data["clamp"] = clamp;
    ctx->saved_data["inverse"] = inverse;
    return {y, log_det};
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const double clamp = ctx->saved_data["clamp"].toDouble();
    const bool inverse = ctx->saved_data["inverse"].toBool();
    // The tensors are unpacked before any guard: a hook that unpacks may compute, and record, the
    // forward pass once more.
    const variable_list kept = ctx->get_saved_variables();
    if (is_followed({grads[0], grads[1], kept[0], kept[1]})) {
      const auto [grad_x, grad_params] =
          composed_backward(grads[0], grads[1], kept[0], kept[1], clamp, inverse);
      return {grad_x, grad_params, at::Tensor(), at::Tensor()};
    }
    // Without gradient mode nobody differentiates these gradients: the guard skips the keys that
    // record.
    std::optional<at::AutoDispatchBelowADInplaceOrView> guard;
    if (!at::GradMode::is_enabled()) guard.emplace();
    const auto [grad_x, grad_params] = call_backward(grads, kept, clamp, inverse);
    return {grad_x, grad_params, at::Tensor(), at::Tensor()};
  }
};

Tensors affine_coupling_autograd(const at::Tensor& x, const at::Tensor& params, double clamp,
                                 bool inverse) {
  if (is_followed({x, params})) return composed_coupling(x, params, clamp, inverse);
  const variable_list outputs = AffineCoupling::apply(x, params, clamp, inverse);
  return {outputs[0], outputs[1]};
}

}  // namespace

TORCH_LIBRARY_IMPL(simcore, Autograd, m) { m.impl("affine_coupling", affine_coupling_autograd); }

}  // namespace simcore
