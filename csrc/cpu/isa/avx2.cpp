// Inner loops for avx2: 256-bit vectors; 12 accumulators of the 16 registers.
#include "cpu/isa/isa.h"
#include "cpu/isa/neighbours_table.h"
#include "cpu/isa/spectral_table.h"

#if defined(__x86_64__)

#define SIMCORE_VECTOR_BYTES 32
#define SIMCORE_MR 4

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c")
#endif

namespace simcore::cpu::avx2 {

// clang-format off: the others build on the first
#include "cpu/isa/isa_impl.h"
#include "cpu/isa/neighbours_impl.h"
#include "cpu/isa/spectral_impl.h"
// clang-format on

IsaTable<float> table_f32() { return make_table<float>("avx2"); }
IsaTable<double> table_f64() { return make_table<double>("avx2"); }
SpectralTable table_spectral() { return make_spectral_table(); }
NeighboursTable table_neighbours() { return make_neighbours_table(); }

}  // namespace simcore::cpu::avx2

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

#endif  // defined(__x86_64__)
