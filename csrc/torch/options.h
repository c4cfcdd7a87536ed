// From Python's words and tensors to the torch-free types of csrc/cpu.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "core/attention_math.h"
#include "cpu/hsic.h"
#include "cpu/plan.h"

namespace simcore {

KernelKind parse_kernel(const std::string& name);
Estimator parse_estimator(const std::string& name);
cpu::Method parse_method(const std::string& name);
AttentionMeasure parse_attention_measure(const std::string& name);
const char* method_name(cpu::Method method);

cpu::DType dtype_of(const at::Tensor& layer);
cpu::LayerView layer_view(const at::Tensor& layer);

// ATen's intra-op threads; progress and Ctrl-C through progress.h.
cpu::Runtime torch_runtime();

}  // namespace simcore
