#include "torch/options.h"

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>

#include "cpu/base/memory.h"
#include "cpu/products/grid.h"
#include "torch/progress.h"

namespace simcore {

KernelKind parse_kernel(const std::string& name) {
  if (name == "linear") return KernelKind::linear;
  TORCH_CHECK_VALUE(name == "rbf", "kernel: wanted 'linear' or 'rbf', got '", name, "'");
  return KernelKind::rbf;
}

Estimator parse_estimator(const std::string& name) {
  if (name == "biased") return Estimator::biased;
  TORCH_CHECK_VALUE(name == "unbiased", "estimator: wanted 'biased' or 'unbiased', got '", name,
                    "'");
  return Estimator::unbiased;
}

cpu::Method parse_method(const std::string& name) {
  if (name == "auto") return cpu::Method::automatic;
  if (name == "gram") return cpu::Method::gram;
  TORCH_CHECK_VALUE(name == "feature", "method: wanted 'auto', 'gram' or 'feature', got '", name,
                    "'");
  return cpu::Method::feature;
}

const char* method_name(cpu::Method method) {
  return method == cpu::Method::gram ? "gram" : "feature";
}

AttentionMeasure parse_attention_measure(const std::string& name) {
  if (name == "js") return AttentionMeasure::js;
  if (name == "pearson") return AttentionMeasure::pearson;
  TORCH_CHECK_VALUE(name == "frobenius", "measure: wanted 'js', 'pearson' or 'frobenius', got '",
                    name, "'");
  return AttentionMeasure::frobenius;
}

cpu::DType dtype_of(const at::Tensor& layer) {
  switch (layer.scalar_type()) {
    case at::kHalf: return cpu::DType::f16;
    case at::kBFloat16: return cpu::DType::bf16;
    case at::kFloat: return cpu::DType::f32;
    case at::kDouble: return cpu::DType::f64;
    default: TORCH_CHECK_TYPE(false, "wanted a floating-point layer, got ", layer.scalar_type());
  }
}

cpu::LayerView layer_view(const at::Tensor& layer) {
  return {layer.const_data_ptr(), dtype_of(layer), layer.size(1), layer.stride(0), layer.stride(1)};
}

std::vector<cpu::LayerView> layer_views(at::TensorList layers) {
  std::vector<cpu::LayerView> views;
  for (const at::Tensor& layer : layers) views.push_back(layer_view(layer));
  return views;
}

void check_layers(at::TensorList layers, const char* name, int64_t n) {
  for (size_t i = 0; i < layers.size(); i++) {
    const at::Tensor& layer = layers[i];
    TORCH_CHECK_VALUE(layer.dim() == 2, name, "[", i, "]: wanted shape [n, p], got ",
                      layer.sizes());
    TORCH_CHECK_VALUE(layer.size(0) == n, name, "[", i, "]: wanted ", n, " rows, got ",
                      layer.size(0));
    TORCH_CHECK_VALUE(layer.size(1) > 0, name, "[", i, "]: wanted at least 1 column, got 0");
    TORCH_CHECK_TYPE(at::isFloatingType(layer.scalar_type()), name, "[", i,
                     "]: wanted a floating-point dtype, got ", layer.scalar_type());
  }
}

int64_t rows_of(at::TensorList x) {
  TORCH_CHECK_VALUE(!x.empty(), "X: wanted at least one layer, got none");
  TORCH_CHECK_VALUE(x[0].dim() == 2, "X[0]: wanted shape [n, p], got ", x[0].sizes());
  TORCH_CHECK_VALUE(x[0].size(0) > 0, "X[0]: wanted at least 1 row, got 0");
  return x[0].size(0);
}

int64_t check_hsic_layers(at::TensorList x, at::TensorList y, const std::string& estimator) {
  const int64_t n = rows_of(x), least = min_examples(parse_estimator(estimator));
  check_layers(x, "X", n);
  check_layers(y, "Y", n);
  TORCH_CHECK_VALUE(n >= least, "X[0]: wanted at least ", least, " rows for the ", estimator,
                    " estimator, got ", n);
  return n;
}

at::Tensor to_tensor(const std::vector<double>& values, at::IntArrayRef shape) {
  at::Tensor result = at::empty(shape, at::kDouble);
  std::copy(values.begin(), values.end(), result.mutable_data_ptr<double>());
  return result;
}

at::Tensor empty_in_huge_pages(at::IntArrayRef shape, at::ScalarType dtype) {
  at::Tensor result = at::empty(shape, dtype);
  cpu::ask_for_huge_pages(result.mutable_data_ptr(), int64_t(result.nbytes()));
  return result;
}

int affordable_threads(int64_t bytes_per_thread, int64_t max_memory, int threads) {
  const int64_t bound = cpu::memory_bound(max_memory);
  TORCH_CHECK_VALUE(bytes_per_thread <= bound, "max_memory: wanted at least ", bytes_per_thread,
                    " bytes, got ", bound);
  return int(std::min<int64_t>(threads, bound / bytes_per_thread));
}

cpu::Runtime torch_runtime() {
  cpu::Runtime rt;
  rt.threads = at::get_num_threads();
  rt.on_threads = [threads = rt.threads](const std::function<void(int)>& body) {
    at::parallel_for(0, threads, 1, [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; t++) body(int(t));
    });
  };
  rt.progress = report_progress;
  return rt;
}

}  // namespace simcore
