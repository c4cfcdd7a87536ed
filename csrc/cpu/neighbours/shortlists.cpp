#include "cpu/neighbours/shortlists.h"

#include <algorithm>
#include <limits>

namespace simcore::cpu {
namespace {

bool before(const Candidate& a, const Candidate& b) {
  return a.key < b.key || (a.key == b.key && a.index < b.index);
}

int64_t most_of(int64_t n, int64_t k) { return std::min(n - 1, k + Shortlists::kSpare); }
int64_t capacity_of(int64_t n, int64_t k) {
  return std::min(n - 1, k + Shortlists::kSpare + Shortlists::kRoom);
}

}  // namespace

Shortlists::Shortlists(const std::vector<uint64_t>& marks, int64_t k, int64_t padded)
    : marks_(marks),
      k_(k),
      most_(most_of(int64_t(marks.size()), k)),
      capacity_(capacity_of(int64_t(marks.size()), k)),
      slots_(int64_t(marks.size()) * capacity_),
      counts_(marks.size()),
      limits_(padded, -std::numeric_limits<float>::infinity()) {
  std::fill(limits_.begin(), limits_.begin() + int64_t(marks.size()),
            std::numeric_limits<float>::max());
}

int64_t Shortlists::bytes(int64_t n, int64_t k, int64_t padded) {
  return buffer_bytes(n * capacity_of(n, k) * int64_t(sizeof(Candidate))) + 4 * n + 4 * padded;
}

float Shortlists::kth_key(int64_t i) {
  Candidate* const slots = slots_.data() + i * capacity_;
  std::nth_element(slots, slots + k_ - 1, slots + counts_[i], before);
  return slots[k_ - 1].key;
}

// Drops the copies of a row beyond the first k; returns the new end.
Candidate* Shortlists::drop_copies(Candidate* begin, Candidate* end) const {
  std::sort(begin, end, [this](const Candidate& a, const Candidate& b) {
    const uint64_t mark_a = marks_[a.index], mark_b = marks_[b.index];
    return mark_a < mark_b || (mark_a == mark_b && a.index < b.index);
  });
  Candidate* kept = begin;
  for (const Candidate* next = begin; next < end; next++)
    if (kept - begin < k_ || marks_[kept[-k_].index] != marks_[next->index]) *kept++ = *next;
  return kept;
}

void Shortlists::keep(int64_t i, float limit) {
  Candidate* const slots = slots_.data() + i * capacity_;
  Candidate* end = std::partition(slots, slots + counts_[i],
                                  [limit](const Candidate& c) { return c.key <= limit; });
  if (end - slots > most_) end = drop_copies(slots, end);
  counts_[i] = int32_t(end - slots);
  limits_[i] = counts_[i] > most_ ? kFlooded : limit;
}

}  // namespace simcore::cpu
