// The names of HSIC's options, and checks of its layers, shared by the adapters of HSIC.
#pragma once

#include <string>

#include "core/views/hsic_problem.h"
#include "cpu/hsic/plan.h"
#include "torch/tensor.h"

namespace simcore {

KernelKind parse_kernel(const std::string& name);
cpu::Method parse_method(const std::string& name);

// Throws ValueError or TypeError for layers that do not fit together, too few rows for the
// estimator or an unknown estimator.
HsicProblem hsic_problem(const Tensors& x, const Tensors& y, KernelKind kernel,
                         const std::string& estimator, double bandwidth = 1.0);

}  // namespace simcore
