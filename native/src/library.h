// The routines of library calls. The library "braze" is built in; its routines take
//
//   topk      buffers x [rows, n], values [rows, k], places int64 [rows, k], scratch int64 [n];
//             params rows, n, k (k <= n). The first k of each row in sorted order and where they
//             stood; of equal elements the first comes first, NaN counts as larger than all.
//             attributes: dtype, largest (a bool).
//   nonzero   buffers x [n], places int64 [n], count int64 [1]; params n. The places of elements
//             that are not zero, ascending, and how many there are. attributes: dtype.
#pragma once

#include "device.h"
#include "plan.h"

namespace braze {

// Throws a target error for a library or routine this runtime does not have, a format error for
// attributes, buffers or params that the routine does not take.
Routine find_routine(const Plan& plan, const LibraryCall& step);

// copies params[0] bytes from buffer 0 to buffer 1
Routine copy_routine();

}  // namespace braze
