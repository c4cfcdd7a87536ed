// Inner loops for avx512: 512-bit vectors; 24 accumulators of the 32 registers.
#include "cpu/isa/isa.h"
#include "cpu/isa/neighbours_table.h"
#include "cpu/isa/spectral_table.h"

#if defined(__x86_64__)

#define SIMCORE_VECTOR_BYTES 64
#define SIMCORE_MR 8

#if defined(__clang__)
#pragma clang attribute push( \
    __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,fma,f16c"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,fma,f16c,prefer-vector-width=512")
#endif

namespace simcore::cpu::avx512 {

// clang-format off: the others build on the first
#include "cpu/isa/isa_impl.h"
#include "cpu/isa/neighbours_impl.h"
#include "cpu/isa/spectral_impl.h"
// clang-format on

IsaTable<float> table_f32() { return make_table<float>("avx512"); }
IsaTable<double> table_f64() { return make_table<double>("avx512"); }
SpectralTable table_spectral() { return make_spectral_table(); }
NeighboursTable table_neighbours() { return make_neighbours_table(); }

}  // namespace simcore::cpu::avx512

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

#endif  // defined(__x86_64__)
