// Mean ranks of many numbers; sorted neighbours that only rounding tells apart share a rank.
#pragma once

#include <cstdint>

namespace simcore::cpu {

// An item of the sort holds the index of a value in this many low bits, and a key above them.
constexpr int kIndexBits = 31;

// out[i] = 2 rank(values[i]) - (count + 1), ranks from 1 on: whole numbers whose sum is 0. Sorted
// neighbours at most `rounding` apart share their mean rank, which is a multiple of a half. All
// results are 0 if no two values differ by more than `rounding`. Values are finite; count <
// 2^kIndexBits; items and spare are workspaces of `count` each.
void centred_ranks(const double* values, int64_t count, double rounding, uint64_t* items,
                   uint64_t* spare, int32_t* out);

}  // namespace simcore::cpu
