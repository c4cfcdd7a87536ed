// Attention similarity of all layer pairs against plain double loops.
#include "cpu/attention/attention.h"

#include "check.h"
#include "naive_attention.h"

using naive::Attention;
using naive::DType;
using naive::kFloat32;
using naive::kFloat64;
using naive::kMeasures;
using naive::make_attention;
using naive::problem_of;
using simcore::AttentionMeasure;
using simcore::AttentionProblem;
using simcore::cpu::attention_similarity;
using simcore::cpu::Runtime;

namespace {

void check_against_loops(const std::vector<Attention>& x, const std::vector<Attention>& y,
                         double tolerance) {
  naive::check_against_loops(x, y, tolerance, [](const AttentionProblem& problem) {
    return attention_similarity(problem, Runtime::serial());
  });
}

}  // namespace

TEST(grids_match_plain_loops) {
  const std::vector<int64_t> words = {7, 1, 33, 2};
  for (const DType dtype : {DType::f64, DType::f32, DType::f16, DType::bf16}) {
    const double tolerance = dtype == DType::f64 ? kFloat64 : kFloat32;
    std::vector<Attention> x, y;
    for (const int64_t heads : {3, 9, 1})
      x.push_back(make_attention(words, heads, dtype, unsigned(heads), heads == 9));
    for (const int64_t heads : {2, 12}) y.push_back(make_attention(words, heads, dtype, 7));
    check_against_loops(x, {}, tolerance);
    check_against_loops(x, y, tolerance);
  }
}

TEST(more_heads_than_a_tile) {
  std::vector<Attention> x, y;
  for (const int64_t heads : {21, 14}) x.push_back(make_attention({6, 2}, heads, DType::f32, 8));
  for (const int64_t heads : {26, 2}) y.push_back(make_attention({6, 2}, heads, DType::f64, 9));
  check_against_loops(x, {}, kFloat32);
  check_against_loops(x, y, kFloat64);
}

TEST(rows_longer_than_a_block) {
  std::vector<Attention> x;
  for (const int64_t heads : {2, 1}) x.push_back(make_attention({300, 3}, heads, DType::f32, 3));
  check_against_loops(x, {}, kFloat32);
}

TEST(threads_and_memory_leave_the_result_alone) {
  std::vector<Attention> x;
  for (const int64_t heads : {3, 12})
    x.push_back(make_attention({40, 3, 17}, heads, DType::f32, 5));
  for (const AttentionMeasure measure : kMeasures) {
    AttentionProblem problem = problem_of(x, {}, measure);
    const std::vector<double> want = attention_similarity(problem, Runtime::serial());
    CHECK(attention_similarity(problem, naive::threads(3)) == want);
    problem.max_memory = 1;
    const std::string message =
        check::message_of([&] { attention_similarity(problem, Runtime::serial()); });
    CHECK(message.find("max_memory: wanted at least ") == 0);
    problem.max_memory = std::stoll(message.substr(message.find("least ") + 6));
    const std::vector<double> got = attention_similarity(problem, naive::threads(2));
    for (size_t i = 0; i < want.size(); i++) CHECK_NEAR(got[i], want[i], kFloat32);
  }
}

int main() { return check::main(); }
