#include "torch/coupling_checks.h"

#include "torch/convert.h"

namespace simcore {

RowsView rows_view(const Tensor& array) {
  return {array.const_data_ptr(), dtype_of(array), array.dim() == 3 ? array.stride(0) : 0,
          array.stride(-2), array.stride(-1)};
}

// simcore/nn raises these errors in words for users; here they keep a direct call of the operator
// safe.
Coupling coupling_of(const Tensor& x, const Tensor& params, double clamp, bool inverse) {
  SIMCORE_CHECK(x.dim() == 2 || x.dim() == 3, "x: wanted shape [n, k] or [B, n, k], got ",
                x.sizes());
  std::vector<int64_t> wanted(x.sizes().begin(), x.sizes().end());
  wanted.back() *= 2;
  SIMCORE_CHECK(params.sizes() == Shape(wanted), "params: wanted shape ", Shape(wanted),
                " (s_raw, then t), got ", params.sizes());
  SIMCORE_CHECK(clamp > 0 && clamp <= kMaxClamp, "clamp: wanted a number in (0, ", kMaxClamp,
                "], got ", clamp);
  Coupling coupling{x.dim() == 3 ? x.size(0) : 1, x.size(-2), x.size(-1), rows_view(x),
                    rows_view(params)};
  coupling.clamp = clamp;
  coupling.inverse = inverse;
  return coupling;
}

ScalarType coupling_type(const Tensor& x, const Tensor& params) {
  const bool wide =
      x.scalar_type() == ScalarType::Double || params.scalar_type() == ScalarType::Double;
  return wide ? ScalarType::Double : ScalarType::Float;
}

void check_coupling_gradients(const Tensor& grad, const Tensor& grad_log_det, const Tensor& kept) {
  SIMCORE_CHECK(grad.sizes() == kept.sizes(), "grad: wanted shape ", kept.sizes(), ", got ",
                grad.sizes());
  SIMCORE_CHECK(grad_log_det.sizes() == kept.sizes().prefix(kept.dim() - 1),
                "grad_log_det: wanted shape ", kept.sizes().prefix(kept.dim() - 1), ", got ",
                grad_log_det.sizes());
}

}  // namespace simcore
