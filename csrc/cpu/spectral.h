// Instruction-set dependent parts of nuclear.cpp: a symmetric matrix to band form, and traces of
// the band's resolvent. See isa_spectral.h.
#pragma once

#include <cstdint>

namespace simcore::cpu {

constexpr int64_t kBand = 24;   // a multiple of every instruction set's three registers of doubles
constexpr int64_t kPoles = 24;  // shifts per call

struct SpectralTable {
  // a: symmetric [size, size], size a multiple of kBand, in column panels of
  // IsaTable<double>::width; overwritten. band[i][d], d <= kBand: entry (i + d, i) of the similar
  // band matrix. work: band_work(size) numbers.
  void (*reduce_to_band)(double* a, int64_t size, double* work, double* band);
  // traces[s] = tr (B + shifts[s] I)^-1 for a positive definite B + shifts[s] I.
  void (*resolvent_traces)(const double* band, int64_t size, const double* shifts, double* traces);
};

constexpr int64_t band_work(int64_t size) { return size * (8 * kBand + 1); }

const SpectralTable& spectral_table();

}  // namespace simcore::cpu
