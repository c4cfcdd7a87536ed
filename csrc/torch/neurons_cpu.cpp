// Assignments of neurons on the CPU: checks and the calls into csrc/cpu/neurons.
#include <vector>

#include "core/math/index_math.h"
#include "cpu/isa/isa.h"
#include "cpu/neurons/assignment.h"
#include "torch/checks.h"
#include "torch/convert.h"
#include "torch/torch_runtime.h"

namespace simcore {
namespace {

// Returns the numbers of the entries that are set.
std::vector<int64_t> numbers_of(const bool* flags, int64_t count) {
  std::vector<int64_t> numbers;
  for (int64_t i = 0; i < count; i++)
    if (flags[i]) numbers.push_back(i);
  return numbers;
}

// Writes the column of each of `rows` to partner; both lists hold places in a matrix of gains.
template <typename T>
void assign(const T* gains, int64_t stride, const std::vector<int64_t>& rows,
            const std::vector<int64_t>& columns, int64_t* partner) {
  if (rows.empty() || columns.empty()) return;
  const bool turned = rows.size() > columns.size();
  const std::vector<int64_t>&narrow = turned ? columns : rows, &wide = turned ? rows : columns;
  const int64_t padded = round_to(int64_t(wide.size()), cpu::isa_table<T>().width);
  std::vector<T> costs(narrow.size() * padded, cpu::Costs<T>::beyond());
  for (size_t i = 0; i < narrow.size(); i++)
    for (size_t j = 0; j < wide.size(); j++)
      costs[i * padded + j] =
          -(turned ? gains[wide[j] * stride + narrow[i]] : gains[narrow[i] * stride + wide[j]]);
  cpu::Assignment<T> solver(int64_t(wide.size()));
  const std::vector<int64_t>& found =
      solver.solve({costs.data(), int64_t(narrow.size()), int64_t(wide.size()), padded});
  for (size_t i = 0; i < narrow.size(); i++)
    if (turned)
      partner[wide[found[i]]] = narrow[i];
    else
      partner[narrow[i]] = wide[found[i]];
}

Tensor best_assignments_cpu(const Tensor& gains_, const Tensor& rows_, const Tensor& columns_) {
  SIMCORE_CHECK(gains_.dim() == 3, "gains: wanted shape [B, p, q], got ", gains_.sizes());
  SIMCORE_CHECK_TYPE(
      gains_.scalar_type() == ScalarType::Float || gains_.scalar_type() == ScalarType::Double,
      "gains: wanted float32 or float64, got ", gains_.scalar_type());
  const int64_t count = gains_.size(0), p = gains_.size(1), q = gains_.size(2);
  const auto check = [&](const Tensor& flags, const char* name, int64_t size) {
    SIMCORE_CHECK_TYPE(flags.scalar_type() == ScalarType::Bool, name, ": wanted bool, got ",
                       flags.scalar_type());
    SIMCORE_CHECK(flags.sizes() == Shape({count, size}), name, ": wanted shape [", count, ", ",
                  size, "], got ", flags.sizes());
  };
  check(rows_, "rows", p);
  check(columns_, "columns", q);
  const Tensor gains = contiguous(gains_), rows = contiguous(rows_), columns = contiguous(columns_);
  const Tensor partner = empty({count, p}, ScalarType::Long);
  int64_t* const out = mutable_data<int64_t>(partner);
  std::fill(out, out + count * p, -1);
  cpu::parallel_tasks(torch_runtime(), count, [&](int64_t b, int) {
    const auto left = numbers_of(const_data<bool>(rows) + b * p, p);
    const auto right = numbers_of(const_data<bool>(columns) + b * q, q);
    if (gains.scalar_type() == ScalarType::Float)
      assign(const_data<float>(gains) + b * p * q, q, left, right, out + b * p);
    else
      assign(const_data<double>(gains) + b * p * q, q, left, right, out + b * p);
  });
  return partner;
}

}  // namespace

const Library neurons_functions("CPU", [](const Library& m) {
  m.impl("best_assignments", boxed<best_assignments_cpu>);
});

}  // namespace simcore
