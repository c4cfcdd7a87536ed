// simcore::small_svd on a CUDA device: checks, and the call into csrc/cuda on the current stream.

#include <tuple>

#include "cuda/spectral/jacobi.h"
#include "torch/runtime_cuda.h"

namespace simcore {
namespace {

std::tuple<Tensor, Tensor, Tensor> small_svd_cuda(const Tensor& m) {
  SIMCORE_CHECK(m.dim() == 3 && m.scalar_type() == ScalarType::Float && m.is_contiguous(),
                "m: wanted contiguous float32 matrices [B, k, l], got ", m.scalar_type(), " ",
                m.sizes());
  const int64_t count = m.size(0), rows = m.size(1), columns = m.size(2);
  SIMCORE_CHECK(0 < columns && columns <= rows && rows <= cuda::kMostJacobi,
                "m: wanted at least as many rows as columns and at most ", cuda::kMostJacobi,
                ", got ", m.sizes());
  const DeviceGuard guard(m.device().index());
  const Tensor u = empty_on(m.device(), {count, rows, columns}, ScalarType::Float);
  const Tensor s = empty_on(m.device(), {count, columns}, ScalarType::Float);
  const Tensor v = empty_on(m.device(), {count, columns, columns}, ScalarType::Float);
  cuda::small_svd({count, rows, columns, const_data<float>(m), mutable_data<float>(u),
                   mutable_data<float>(s), mutable_data<float>(v)},
                  current_stream(m.device()));
  return {u, s, v};
}

}  // namespace

const Library functions("CUDA",
                        [](const Library& m) { m.impl("small_svd", boxed<small_svd_cuda>); });

}  // namespace simcore
