#include "torch/hsic_checks.h"

#include "torch/checks.h"

namespace simcore {
namespace {

Estimator parse_estimator(const std::string& name) {
  if (name == "biased") return Estimator::biased;
  if (name == "unbiased") return Estimator::unbiased;
  SIMCORE_CHECK(name == "product", "estimator: wanted 'biased', 'unbiased' or 'product', got '",
                name, "'");
  return Estimator::product;
}

}  // namespace

KernelKind parse_kernel(const std::string& name) {
  if (name == "linear") return KernelKind::linear;
  if (name == "rbf") return KernelKind::rbf;
  SIMCORE_CHECK(name == "distance", "kernel: wanted 'linear', 'rbf' or 'distance', got '", name,
                "'");
  return KernelKind::distance;
}

cpu::Method parse_method(const std::string& name) {
  if (name == "auto") return cpu::Method::automatic;
  if (name == "gram") return cpu::Method::gram;
  SIMCORE_CHECK(name == "feature", "method: wanted 'auto', 'gram' or 'feature', got '", name, "'");
  return cpu::Method::feature;
}

HsicProblem hsic_problem(const Tensors& x, const Tensors& y, KernelKind kernel,
                         const std::string& estimator, double bandwidth) {
  SIMCORE_CHECK(bandwidth > 0, "bandwidth: wanted a positive number, got ", bandwidth);
  HsicProblem problem{layers_problem(x, y), kernel, parse_estimator(estimator), bandwidth};
  const int64_t least = min_examples(problem.estimator);
  SIMCORE_CHECK(problem.n >= least, "X[0]: wanted at least ", least, " rows for the ", estimator,
                " estimator, got ", problem.n);
  return problem;
}

}  // namespace simcore
