// The derivative of simcore::affine_coupling, which is simcore::affine_coupling_backward; the
// second is in simcore/_ops.py. In C++ because a stack of couplings calls it at every step of a
// training: neither recording nor running it goes through the interpreter.
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <optional>

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
    // Before any guard: a hook that unpacks may compute, and record, the forward pass once more.
    const variable_list kept = ctx->get_saved_variables();
    // Nobody differentiates the gradients: what would record them need not be asked.
    std::optional<at::AutoDispatchBelowADInplaceOrView> guard;
    if (!at::GradMode::is_enabled()) guard.emplace();
    const auto [grad_x, grad_params] = call_backward(grads, kept, clamp, inverse);
    return {grad_x, grad_params, at::Tensor(), at::Tensor()};
  }
};

Tensors affine_coupling_autograd(const at::Tensor& x, const at::Tensor& params, double clamp,
                                 bool inverse) {
  const variable_list outputs = AffineCoupling::apply(x, params, clamp, inverse);
  return {outputs[0], outputs[1]};
}

}  // namespace

TORCH_LIBRARY_IMPL(simcore, Autograd, m) { m.impl("affine_coupling", affine_coupling_autograd); }

}  // namespace simcore
