#include "torch/neuron_checks.h"

#include "torch/options.h"

namespace simcore {

NeuronProblem neuron_problem(at::TensorList x, at::TensorList y) {
  NeuronProblem problem;
  problem.n = rows_of(x);
  check_layers(x, "X", problem.n);
  check_layers(y, "Y", problem.n);
  problem.x = layer_views(x);
  problem.y = layer_views(y);
  return problem;
}

int64_t total_width(at::TensorList x) {
  int64_t width = 0;
  for (const at::Tensor& layer : x) width += layer.size(1);
  return width;
}

}  // namespace simcore
