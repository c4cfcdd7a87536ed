#include "torch/coupling_checks.h"

#include <c10/util/Exception.h>

#include "torch/convert.h"

namespace simcore {

RowsView rows_view(const at::Tensor& array) {
  return {array.const_data_ptr(), dtype_of(array), array.dim() == 3 ? array.stride(0) : 0,
          array.stride(-2), array.stride(-1)};
}

// simcore/nn raises these errors in words for users; here they keep a direct call of the operator
// safe.
Coupling coupling_of(const at::Tensor& x, const at::Tensor& params, double clamp, bool inverse) {
  TORCH_CHECK_VALUE(x.dim() == 2 || x.dim() == 3, "x: wanted shape [n, k] or [B, n, k], got ",
                    x.sizes());
  std::vector<int64_t> wanted = x.sizes().vec();
  wanted.back() *= 2;
  TORCH_CHECK_VALUE(params.sizes() == at::IntArrayRef(wanted), "params: wanted shape ",
                    at::IntArrayRef(wanted), " (s_raw, then t), got ", params.sizes());
  TORCH_CHECK_VALUE(clamp > 0 && clamp <= kMaxClamp, "clamp: wanted a number in (0, ", kMaxClamp,
                    "], got ", clamp);
  Coupling coupling{x.dim() == 3 ? x.size(0) : 1, x.size(-2), x.size(-1), rows_view(x),
                    rows_view(params)};
  coupling.clamp = clamp;
  coupling.inverse = inverse;
  return coupling;
}

at::ScalarType coupling_type(const at::Tensor& x, const at::Tensor& params) {
  const bool wide = x.scalar_type() == at::kDouble || params.scalar_type() == at::kDouble;
  return wide ? at::kDouble : at::kFloat;
}

void check_coupling_gradients(const at::Tensor& grad, const at::Tensor& grad_log_det,
                              const at::Tensor& kept) {
  TORCH_CHECK_VALUE(grad.sizes() == kept.sizes(), "grad: wanted shape ", kept.sizes(), ", got ",
                    grad.sizes());
  TORCH_CHECK_VALUE(grad_log_det.sizes() == kept.sizes().slice(0, kept.dim() - 1),
                    "grad_log_det: wanted shape ", kept.sizes().slice(0, kept.dim() - 1), ", got ",
                    grad_log_det.sizes());
}

}  // namespace simcore
