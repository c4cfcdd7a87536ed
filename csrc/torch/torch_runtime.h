// The runtime that csrc/cpu gets from torch: ATen's threads and memory, progress and Ctrl-C.
#pragma once

#include "cpu/base/runtime.h"
#include "torch/tensor.h"

namespace simcore {

// Returns ATen's intra-op threads; progress and Ctrl-C go through progress.h.
cpu::Runtime torch_runtime();

// Returns the number of threads, at most `threads`, that max_memory (0: the default) has room for;
// refuses a bound that has no room for one.
int affordable_threads(int64_t bytes_per_thread, int64_t max_memory, int threads);

// Returns an uninitialised, contiguous tensor. A tensor so large that the allocator gets it afresh
// from the system asks for huge pages: touching small pages for the first time takes longer than
// filling them.
Tensor empty_in_huge_pages(Shape shape, ScalarType dtype);

}  // namespace simcore
