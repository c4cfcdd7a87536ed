#include "cpu/neighbours/shortlists.h"

#include <algorithm>
#include <limits>

#include "core/math/index_math.h"
#include "cpu/isa/isa.h"
#include "cpu/isa/neighbours_table.h"

namespace simcore::cpu {
namespace {

constexpr int64_t kMostRanked = 128;  // keys of which the k-th is found by comparing all with all

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
      due_(marks.size(), int32_t(std::min(capacity_, k + kStep))),
      limits_(padded, -std::numeric_limits<float>::infinity()) {
  std::fill(limits_.begin(), limits_.begin() + int64_t(marks.size()),
            std::numeric_limits<float>::max());
}

int64_t Shortlists::bytes(int64_t n, int64_t k, int64_t padded) {
  return buffer_bytes(n * capacity_of(n, k) * int64_t(sizeof(Candidate))) + 8 * n + 4 * padded;
}

float Shortlists::kth_key(int64_t i) {
  Candidate* const slots = slots_.data() + i * capacity_;
  if (counts_[i] <= kMostRanked) {
    float keys[kMostRanked + kMaxUnit];
    const int64_t padded = round_to(counts_[i], isa_table<float>().width);
    for (int64_t c = 0; c < counts_[i]; c++) keys[c] = slots[c].key;
    std::fill(keys + counts_[i], keys + padded, std::numeric_limits<float>::infinity());
    return neighbours_table().kth(keys, counts_[i], k_);
  }
  std::nth_element(slots, slots + k_ - 1, slots + counts_[i], before);
  return slots[k_ - 1].key;
}

const Candidate* Shortlists::sorted(int64_t i) {
  Candidate* const slots = slots_.data() + i * capacity_;
  std::sort(slots, slots + counts_[i], before);
  return slots;
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
  Candidate* end = slots;
  for (const Candidate* next = slots; next < slots + counts_[i]; next++) {
    *end = *next;  // written in any case: a branch would often be mispredicted
    end += next->key <= limit;
  }
  if (end - slots > most_) end = drop_copies(slots, end);
  counts_[i] = int32_t(end - slots);
  due_[i] = int32_t(std::min(capacity_, counts_[i] + kStep));
  limits_[i] = counts_[i] > most_ ? kFlooded : limit;
}

}  // namespace simcore::cpu
