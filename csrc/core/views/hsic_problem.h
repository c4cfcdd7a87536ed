// A request for the HSIC of two sets of layers, on any device.
#pragma once

#include "core/math/hsic_math.h"
#include "core/math/rbf_math.h"
#include "core/views/layers_problem.h"

namespace simcore {

struct HsicProblem : LayersProblem {
  KernelKind kernel = KernelKind::linear;
  Estimator estimator = Estimator::biased;
  double bandwidth = 1.0;  // RBF: sigma = bandwidth * median distance

  // Whether it is to be computed in float64.
  bool in_float64() const {
    return has_float64() || (kernel == KernelKind::rbf && bandwidth >= kFloat64Bandwidth);
  }
};

}  // namespace simcore
