// What a run spent its time with, for the caller.
#pragma once

#include "abi_struct.h"
#include "braze.h"

namespace braze {

// Fills a caller's struct; throws an execution error for a struct_size it cannot have.
inline void write_times(const braze_run_times& times, braze_run_times& out) {
  constexpr size_t kFirst = offsetof(braze_run_times, d2h_ns) + sizeof(int64_t);
  write_struct(times, out, kFirst, "braze_run_times");
}

}  // namespace braze
