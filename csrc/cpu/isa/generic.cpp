// Inner loops for generic: 128-bit vectors, which every x86-64 (SSE2) and 64-bit Arm (NEON)
// processor has.
#include "cpu/isa/isa.h"
#include "cpu/isa/neighbours_table.h"
#include "cpu/isa/spectral_table.h"

#define SIMCORE_VECTOR_BYTES 16
#define SIMCORE_MR 4

namespace simcore::cpu::generic {

// clang-format off: the others build on the first
#include "cpu/isa/isa_impl.h"
#include "cpu/isa/neighbours_impl.h"
#include "cpu/isa/spectral_impl.h"
// clang-format on

IsaTable<float> table_f32() { return make_table<float>("generic"); }
IsaTable<double> table_f64() { return make_table<double>("generic"); }
SpectralTable table_spectral() { return make_spectral_table(); }
NeighboursTable table_neighbours() { return make_neighbours_table(); }

}  // namespace simcore::cpu::generic
