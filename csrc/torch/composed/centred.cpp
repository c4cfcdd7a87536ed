#include "torch/composed/centred.h"

#include "torch/convert.h"

namespace simcore::composed {

cpu::Centring<double> centring_of(const Tensor& layer, const char* name, int64_t index) {
  auto centring = cpu::make_centring<double>(layer_view(layer), layer.size(0));
  SIMCORE_CHECK(centring.nonfinite == 0, name, "[", index, "]: wanted finite values, got ",
                centring.nonfinite, " NaN or infinite of ", layer.numel());
  return centring;
}

Centred centred(const Tensor& layer, const cpu::Centring<double>& centring) {
  const int64_t n = layer.size(0), p = layer.size(1);
  // A copy is made even of float64 layers, because the next steps write in place.
  Tensor x = empty({n, p}, ScalarType::Double);
  copy_into(x, layer);
  double* entry = mutable_data<double>(x);
  for (int64_t i = 0; i < n; i++)
    for (int64_t k = 0; k < p; k++, entry++)
      *entry = (*entry * centring.scale - centring.mean_hi[k]) - centring.mean_lo[k];
  return {x, centring.exponent};
}

}  // namespace simcore::composed
