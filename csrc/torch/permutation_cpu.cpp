// simcore::permuted_gram_products on the CPU: checks and the call into csrc/cpu.
#include "cpu/hsic/permutation.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include "torch/options.h"

namespace simcore {
namespace {

void check_grams(const at::Tensor& grams, const char* name, int64_t n, at::ScalarType dtype) {
  TORCH_CHECK_VALUE(
      grams.dim() == 3 && grams.size(0) == n && grams.size(1) == n && n > 0 && grams.size(2) > 0,
      name, ": wanted shape [n, n, L], got ", grams.sizes());
  TORCH_CHECK_TYPE(grams.scalar_type() == dtype && (dtype == at::kFloat || dtype == at::kDouble),
                   name, ": wanted float32 or float64, x and y alike, got ", grams.scalar_type());
  TORCH_CHECK_VALUE(grams.is_contiguous(), name, ": wanted a contiguous tensor, got strides ",
                    grams.strides());
}

void check_rows(const at::Tensor& rows, int64_t n) {
  TORCH_CHECK_TYPE(rows.scalar_type() == at::kInt, "rows: wanted int32, got ", rows.scalar_type());
  TORCH_CHECK_VALUE(rows.dim() == 2 && rows.size(1) == n, "rows: wanted shape [draws, ", n,
                    "], got ", rows.sizes());
  const int32_t* data = rows.const_data_ptr<int32_t>();
  for (int64_t i = 0; i < rows.numel(); i++)
    TORCH_CHECK_VALUE(data[i] >= 0 && data[i] < n, "rows: wanted entries in [0, ", n, "), got ",
                      data[i]);
}

template <typename T>
void run(const at::Tensor& x, const at::Tensor& y, const at::Tensor& rows,
         const std::optional<at::Tensor>& weights, at::Tensor& out) {
  cpu::PermutedGrams<T> grams;
  grams.n = x.size(0);
  grams.count_x = x.size(2);
  grams.count_y = y.size(2);
  grams.draws = rows.size(0);
  grams.x = x.const_data_ptr<T>();
  grams.y = y.const_data_ptr<T>();
  grams.rows = rows.const_data_ptr<int32_t>();
  if (weights) grams.weights = weights->const_data_ptr<T>();
  cpu::permuted_gram_products(grams, out.mutable_data_ptr<double>(), torch_runtime());
}

at::Tensor permuted_gram_products_cpu(const at::Tensor& x, const at::Tensor& y,
                                      const at::Tensor& rows_,
                                      const std::optional<at::Tensor>& weights_) {
  const int64_t n = x.dim() > 0 ? x.size(0) : 0;
  check_grams(x, "x", n, x.scalar_type());
  check_grams(y, "y", n, x.scalar_type());
  const at::Tensor rows = rows_.contiguous();
  check_rows(rows, n);
  std::optional<at::Tensor> weights;
  if (weights_) {
    TORCH_CHECK_VALUE(weights_->sizes() == rows.sizes(), "weights: wanted the shape of rows, ",
                      rows.sizes(), ", got ", weights_->sizes());
    weights = weights_->to(x.scalar_type()).contiguous();
  }
  at::Tensor out = at::empty({rows.size(0), x.size(2), y.size(2)}, at::kDouble);
  if (x.scalar_type() == at::kFloat)
    run<float>(x, y, rows, weights, out);
  else
    run<double>(x, y, rows, weights, out);
  return out;
}

}  // namespace

TORCH_LIBRARY_IMPL(simcore, CPU, m) {
  m.impl("permuted_gram_products", permuted_gram_products_cpu);
}

}  // namespace simcore
