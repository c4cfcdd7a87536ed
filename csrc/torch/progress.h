// Progress and interruption of long operators, between tiles.
#pragma once

namespace simcore {

// Tells the Python callback of this thread, if one is set, the finished share in [0, 1], and lets
// pending signals raise (KeyboardInterrupt). Throws what Python raised. Without an interpreter it
// does nothing.
void report_progress(double done);

}  // namespace simcore
