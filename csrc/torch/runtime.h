// What csrc/cpu is given to run with: ATen's threads, its memory, progress and Ctrl-C.
#pragma once

#include <ATen/core/Tensor.h>

#include "cpu/base/runtime.h"

namespace simcore {

// ATen's intra-op threads; progress and Ctrl-C through progress.h.
cpu::Runtime torch_runtime();

// Threads that max_memory (0: the default) has room for, at most `threads`; refuses less than one.
int affordable_threads(int64_t bytes_per_thread, int64_t max_memory, int threads);

// Uninitialised and contiguous. What is so large that the allocator gets it afresh from the system
// asks for huge pages: touching small ones for the first time takes longer than filling them.
at::Tensor empty_in_huge_pages(at::IntArrayRef shape, at::ScalarType dtype);

}  // namespace simcore
