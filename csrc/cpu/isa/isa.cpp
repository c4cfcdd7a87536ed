#include "cpu/isa/isa.h"

#include <cstdlib>
#include <stdexcept>
#include <string>
#include <vector>

#include "cpu/isa/neighbours_table.h"
#include "cpu/isa/spectral_table.h"

namespace simcore::cpu {

#define SIMCORE_DECLARE_ISA(isa)      \
  namespace isa {                     \
  IsaTable<float> table_f32();        \
  IsaTable<double> table_f64();       \
  SpectralTable table_spectral();     \
  NeighboursTable table_neighbours(); \
  }

SIMCORE_DECLARE_ISA(generic)
#if defined(__x86_64__)
SIMCORE_DECLARE_ISA(avx2)
SIMCORE_DECLARE_ISA(avx512)
#endif

namespace {

struct Candidate {
  IsaTable<float> f32;
  IsaTable<double> f64;
  SpectralTable spectral;
  NeighboursTable neighbours;
};

#define SIMCORE_CANDIDATE(isa) \
  Candidate { isa::table_f32(), isa::table_f64(), isa::table_spectral(), isa::table_neighbours() }

// Widest first.
std::vector<Candidate> available() {
  std::vector<Candidate> found;
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
    found.push_back(SIMCORE_CANDIDATE(avx512));
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
      __builtin_cpu_supports("f16c"))
    found.push_back(SIMCORE_CANDIDATE(avx2));
#endif
  found.push_back(SIMCORE_CANDIDATE(generic));
  return found;
}

Candidate choose() {
  const std::vector<Candidate> candidates = available();
  const char* wanted = std::getenv("SIMCORE_CPU_ISA");
  if (wanted == nullptr || *wanted == '\0') return candidates.front();
  std::string names;
  for (const Candidate& candidate : candidates) {
    if (std::string(wanted) == candidate.f32.name) return candidate;
    names += std::string(names.empty() ? "" : ", ") + candidate.f32.name;
  }
  throw std::invalid_argument("SIMCORE_CPU_ISA: wanted one of " + names +
                              " on this processor, got '" + wanted + "'");
}

const Candidate& chosen() {
  static const Candidate candidate = choose();
  return candidate;
}

}  // namespace

template <>
const IsaTable<float>& isa_table<float>() {
  return chosen().f32;
}

template <>
const IsaTable<double>& isa_table<double>() {
  return chosen().f64;
}

const SpectralTable& spectral_table() { return chosen().spectral; }

const NeighboursTable& neighbours_table() { return chosen().neighbours; }

const char* isa_name() { return chosen().f32.name; }

}  // namespace simcore::cpu
