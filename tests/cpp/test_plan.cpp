// make_plan: the cheaper path, inside the memory that was granted.
#include "cpu/hsic/plan.h"

#include <cmath>

#include "check.h"
#include "cpu/base/memory.h"

using simcore::KernelKind;
using simcore::cpu::HsicPlan;
using simcore::cpu::HsicRequest;
using simcore::cpu::make_plan;
using simcore::cpu::Method;

namespace {

HsicRequest request(int64_t n, std::vector<int64_t> widths) {
  HsicRequest wanted;
  wanted.n = n;
  wanted.widths_x = std::move(widths);
  return wanted;
}

}  // namespace

TEST(the_cheaper_path_is_taken) {
  CHECK(make_plan(request(200, std::vector<int64_t>(20, 768))).method == Method::gram);
  CHECK(make_plan(request(50000, {8, 16})).method == Method::feature);
  for (const int64_t n : {31, 1600, 20000}) {
    const HsicPlan plan = make_plan(request(n, std::vector<int64_t>(13, 768)));
    CHECK(plan.flops == std::fmin(plan.flops_gram, plan.flops_feature));
  }
}

TEST(a_method_that_is_asked_for_is_taken) {
  HsicRequest wanted = request(200, std::vector<int64_t>(20, 768));
  wanted.method = Method::feature;
  CHECK(make_plan(wanted).method == Method::feature);
  wanted = request(50000, {8, 16});
  wanted.method = Method::gram;
  CHECK(make_plan(wanted).method == Method::gram);
}

TEST(other_kernels_have_no_feature_form) {
  HsicRequest wanted = request(50000, {8, 16});
  for (const auto& [kernel, name] :
       {std::pair(KernelKind::rbf, "'rbf'"), std::pair(KernelKind::distance, "'distance'")}) {
    wanted.kernel = kernel;
    wanted.method = Method::gram;
    const HsicPlan plan = make_plan(wanted);
    CHECK(plan.method == Method::gram);
    CHECK(std::isinf(plan.flops_feature));
    wanted.method = Method::feature;
    const std::string message = check::message_of([&] { make_plan(wanted); });
    CHECK(message.find(name) != std::string::npos);
  }
}

TEST(the_workspace_stays_inside_the_bound) {
  for (const Method method : {Method::gram, Method::feature})
    for (const bool float64 : {false, true})
      for (const int threads : {1, 2, 7})
        for (const int64_t n : {1, 2, 33, 1600, 20000}) {
          HsicRequest wanted = request(n, {768, 1, 129, 768});
          wanted.method = method;
          wanted.float64 = float64;
          wanted.threads = threads;
          int accepted = 0;
          for (int64_t bytes = int64_t(1) << 36; bytes >= 1; bytes /= 2) {
            wanted.max_memory = bytes;
            check::context = "n " + std::to_string(n) + ", bytes " + std::to_string(bytes);
            const std::string message = check::message_of([&] {
              const HsicPlan plan = make_plan(wanted);
              CHECK(plan.workspace_bytes > 0 && plan.workspace_bytes <= bytes);
              CHECK(plan.max_memory == bytes);
              CHECK(plan.tile_rows > 0 && plan.tile_cols > 0);
              accepted++;
            });
            if (!message.empty()) CHECK(message.find("max_memory") != std::string::npos);
          }
          CHECK(accepted > 0 && accepted < 37);  // a terabyte's share is enough, one byte is not
        }
}

TEST(the_default_bound_is_a_share_of_what_is_free) {
  const HsicPlan plan = make_plan(request(33, {5}));
  const double free = double(simcore::cpu::free_memory());
  CHECK_NEAR(double(plan.max_memory), free / 4, free / 8);  // other processes come and go
}

int main() { return check::main(); }
