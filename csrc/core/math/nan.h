// The value of what is undefined: a layer without variance, a pair with too few rows.
#pragma once

#include <limits>

namespace simcore {

inline constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

}  // namespace simcore
