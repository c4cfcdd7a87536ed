// Instruction-set dependent parts of nuclear.cpp: a matrix to band form, and traces of a band's
// resolvent. See spectral_impl.h.
#pragma once

#include <cstdint>

namespace simcore::cpu {

constexpr int64_t kPoles = 24;  // shifts per call

struct SpectralTable {
  int64_t band;  // b below
  // Returns the number of floats that reduce_to_band needs as `work`.
  int64_t (*band_work)(int64_t rows, int64_t cols);
  // m: [rows, cols], rows <= cols, both multiples of b, in column panels of IsaTable<float>::width;
  // overwritten. upper[i][d], d <= b: entry (i, i + d) of a matrix with m's singular values that is
  // zero elsewhere.
  void (*reduce_to_band)(float* m, int64_t rows, int64_t cols, float* work, double* upper);
  // band[i][d]: entry (i + d, i) of a symmetric matrix A of bandwidth b.
  // traces[s] = tr (A + shifts[s] I)^-1 for a positive definite A + shifts[s] I.
  void (*resolvent_traces)(const double* band, int64_t size, const double* shifts, double* traces);
};

const SpectralTable& spectral_table();

}  // namespace simcore::cpu
