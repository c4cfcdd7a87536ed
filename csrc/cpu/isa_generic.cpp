// Inner loops for generic: 128-bit vectors, which every x86-64 (SSE2) and 64-bit Arm (NEON)
// processor has.
#include "cpu/isa.h"

#define SIMCORE_VECTOR_BYTES 16
#define SIMCORE_MR 4

namespace simcore::cpu::generic {

#include "cpu/isa_impl.h"

IsaTable<float> table_f32() { return make_table<float>("generic"); }
IsaTable<double> table_f64() { return make_table<double>("generic"); }

}  // namespace simcore::cpu::generic
