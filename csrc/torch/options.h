// From Python's words and tensors to the torch-free types of csrc/cpu.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "core/math/attention_math.h"
#include "cpu/hsic/hsic.h"
#include "cpu/hsic/plan.h"

namespace simcore {

KernelKind parse_kernel(const std::string& name);
Estimator parse_estimator(const std::string& name);
cpu::Method parse_method(const std::string& name);
AttentionMeasure parse_attention_measure(const std::string& name);
const char* method_name(cpu::Method method);

cpu::DType dtype_of(const at::Tensor& layer);
cpu::LayerView layer_view(const at::Tensor& layer);
std::vector<cpu::LayerView> layer_views(at::TensorList layers);

// simcore/_inputs.py words these for users; here they keep a direct call of an operator safe.
void check_layers(at::TensorList layers, const char* name, int64_t n);
int64_t rows_of(at::TensorList x);  // n of a side that may not be empty
// Both sides of an HSIC grid, and rows enough for the estimator; returns n.
int64_t check_hsic_layers(at::TensorList x, at::TensorList y, const std::string& estimator);

at::Tensor to_tensor(const std::vector<double>& values, at::IntArrayRef shape);

// Uninitialised and contiguous. What is so large that the allocator gets it afresh from the system
// asks for huge pages: touching small ones for the first time takes longer than filling them.
at::Tensor empty_in_huge_pages(at::IntArrayRef shape, at::ScalarType dtype);

// Threads that max_memory (0: the default) has room for, at most `threads`; refuses less than one.
int affordable_threads(int64_t bytes_per_thread, int64_t max_memory, int threads);

// ATen's intra-op threads; progress and Ctrl-C through progress.h.
cpu::Runtime torch_runtime();

}  // namespace simcore
