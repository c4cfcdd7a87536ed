// simcore::small_svd on a CUDA device: checks, and the call into csrc/cuda on the current stream.
#include <torch/library.h>

#include <tuple>

#include "cuda/spectral/jacobi.h"
#include "torch/runtime_cuda.h"

namespace simcore {
namespace {

std::tuple<at::Tensor, at::Tensor, at::Tensor> small_svd_cuda(const at::Tensor& m) {
  TORCH_CHECK_VALUE(m.dim() == 3 && m.scalar_type() == at::kFloat && m.is_contiguous(),
                    "m: wanted contiguous float32 matrices [B, k, l], got ", m.scalar_type(), " ",
                    m.sizes());
  const int64_t count = m.size(0), rows = m.size(1), columns = m.size(2);
  TORCH_CHECK_VALUE(0 < columns && columns <= rows && rows <= cuda::kMostJacobi,
                    "m: wanted at least as many rows as columns and at most ", cuda::kMostJacobi,
                    ", got ", m.sizes());
  const c10::cuda::CUDAGuard guard(m.device());
  const at::Tensor u = empty_on(m.device(), {count, rows, columns}, at::kFloat);
  const at::Tensor s = empty_on(m.device(), {count, columns}, at::kFloat);
  const at::Tensor v = empty_on(m.device(), {count, columns, columns}, at::kFloat);
  cuda::small_svd({count, rows, columns, m.const_data_ptr<float>(), u.mutable_data_ptr<float>(),
                   s.mutable_data_ptr<float>(), v.mutable_data_ptr<float>()},
                  c10::cuda::getCurrentCUDAStream());
  return {u, s, v};
}

}  // namespace

TORCH_LIBRARY_IMPL(simcore, CUDA, m) { m.impl("small_svd", small_svd_cuda); }

}  // namespace simcore
