// Runs the steps of a launch table.
#pragma once

#include "launch_table.h"

namespace braze {

// num_workers and hooks as in braze_run_options; num_workers is at least 1. Uses the shared pool
// unless another run holds it, in which case the caller does all the work.
void execute(const Engine& engine, LaunchTable& table, int32_t num_workers,
             const braze_run_options& options);

}  // namespace braze
