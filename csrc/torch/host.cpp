#include "torch/host.h"

#include "cpu/base/memory.h"
#include "cpu/isa/isa.h"
#include "torch/hsic_checks.h"
#include "torch/tensor.h"

namespace simcore {

Host* simcore_host() {
  static Host host;
  return &host;
}

cpu::HsicPlan plan_hsic(int64_t n, std::vector<int64_t> widths_x, std::vector<int64_t> widths_y,
                        const char* kernel, double bandwidth, const char* method, bool float64,
                        int64_t max_memory) {
  cpu::HsicRequest request;
  request.n = n;
  request.widths_x = std::move(widths_x);
  request.widths_y = std::move(widths_y);
  request.kernel = parse_kernel(kernel);
  request.bandwidth = bandwidth;
  request.method = parse_method(method);
  request.float64 = float64;
  request.threads = number_of_threads();
  request.max_memory = max_memory;
  return cpu::make_plan(request);
}

const char* name_of(cpu::Method method) { return method == cpu::Method::gram ? "gram" : "feature"; }

const char* instruction_set() { return cpu::isa_name(); }
int64_t free_memory() { return cpu::free_memory(); }
int64_t memory_bound(int64_t max_memory) { return cpu::memory_bound(max_memory); }

}  // namespace simcore
