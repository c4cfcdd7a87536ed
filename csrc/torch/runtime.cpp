#include "torch/runtime.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>

#include <algorithm>

#include "cpu/base/buffer.h"
#include "cpu/base/memory.h"
#include "torch/progress.h"

namespace simcore {

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

int affordable_threads(int64_t bytes_per_thread, int64_t max_memory, int threads) {
  const int64_t bound = cpu::memory_bound(max_memory);
  TORCH_CHECK_VALUE(bytes_per_thread <= bound, "max_memory: wanted at least ", bytes_per_thread,
                    " bytes, got ", bound);
  return int(std::min<int64_t>(threads, bound / bytes_per_thread));
}

at::Tensor empty_in_huge_pages(at::IntArrayRef shape, at::ScalarType dtype) {
  at::Tensor result = at::empty(shape, dtype);
  cpu::ask_for_huge_pages(result.mutable_data_ptr(), int64_t(result.nbytes()));
  return result;
}

}  // namespace simcore
