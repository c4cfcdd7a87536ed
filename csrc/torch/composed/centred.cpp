#include "torch/composed/centred.h"

#include <ATen/TensorOperators.h>

#include "torch/convert.h"

namespace simcore::composed {

cpu::Centring<double> centring_of(const at::Tensor& layer, const char* name, int64_t index) {
  auto centring = cpu::make_centring<double>(layer_view(layer), layer.size(0));
  TORCH_CHECK_VALUE(centring.nonfinite == 0, name, "[", index, "]: wanted finite values, got ",
                    centring.nonfinite, " NaN or infinite of ", layer.numel());
  return centring;
}

Centred centred(const at::Tensor& layer, const cpu::Centring<double>& centring) {
  // A copy is made even of float64 layers, because the next steps write in place.
  at::Tensor x = layer.to(at::kDouble, /*non_blocking=*/false, /*copy=*/true);
  if (centring.scale != 1.0) x.mul_(centring.scale);
  const int64_t p = layer.size(1);
  x.sub_(to_tensor(centring.mean_hi, {p})).sub_(to_tensor(centring.mean_lo, {p}));
  return {x, centring.exponent};
}

}  // namespace simcore::composed
