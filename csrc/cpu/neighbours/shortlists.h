// The candidates for the nearest rows of every row of a layer, while products are being formed.
//
// Math      a row keeps what has a key of at most tau + slack, tau being the k-th smallest key so
//           far and slack twice the rounding error of keys: all rows that could be among its k
//           nearest ones.
// Cost      a candidate is kept k (1 + ln(n / k)) times a row if rows come in no particular order
//           and every one lowers tau at once. tau is found anew after kStep candidates: some 1.6
//           times as many come at n = 1600, k = 10, and tau is found 5 to 6 times a row.
// Numerics  what is kept at the end depends on the keys alone, not on the order in which they came.
#pragma once

#include <cstdint>
#include <vector>

#include "cpu/base/buffer.h"

namespace simcore::cpu {

struct Candidate {
  float key;
  int32_t index;
};

// A row of which more than `most` candidates are within rounding is `flooded`: only the comparison
// with all rows, in float64, tells which are the nearest. Copies of one row, which have one mark,
// do not flood: of these the k lowest indices stay, as the order of equal distances has it.
class Shortlists {
 public:
  static constexpr int64_t kSpare = 32, kRoom = 32, kStep = 16;

  Shortlists(const std::vector<uint64_t>& marks, int64_t k, int64_t padded);
  static int64_t bytes(int64_t n, int64_t k, int64_t padded);

  // Rows are close candidates of row i from this key on; -infinity beyond n.
  const float* limits() const { return limits_.data(); }

  // slack(tau): see above.
  template <typename Slack>
  void push(int64_t i, Candidate candidate, const Slack& slack) {
    if (!(candidate.key <= limits_[i])) return;
    slots_.data()[i * capacity_ + counts_[i]++] = candidate;
    if (counts_[i] == due_[i]) tighten(i, slack);
  }

  // Leaves only what is within `slack` of the k-th smallest key.
  template <typename Slack>
  void tighten(int64_t i, const Slack& slack) {
    if (counts_[i] <= k_ || flooded(i)) return;
    const float tau = kth_key(i);
    keep(i, float(double(tau) + slack(double(tau))));
  }

  bool flooded(int64_t i) const { return limits_[i] == kFlooded; }
  int64_t count(int64_t i) const { return counts_[i]; }
  const Candidate* row(int64_t i) const { return slots_.data() + i * capacity_; }
  const Candidate* sorted(int64_t i);  // the same, by key

 private:
  static constexpr float kFlooded = -3e38f;  // nothing is pushed any more

  float kth_key(int64_t i);
  void keep(int64_t i, float limit);
  Candidate* drop_copies(Candidate* begin, Candidate* end) const;

  const std::vector<uint64_t>& marks_;
  int64_t k_, most_, capacity_;
  Buffer<Candidate> slots_;            // [n, capacity]
  std::vector<int32_t> counts_, due_;  // so many candidates a row has; at so many tau is found anew
  std::vector<float> limits_;          // [padded]
};

}  // namespace simcore::cpu
