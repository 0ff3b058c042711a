// Runs the steps of a table one by one, each timed by events, with a call of the hooks after each.
#pragma once

#include "braze.h"
#include "cuda_objects.h"
#include "cuda_steps.h"
#include "launch_table.h"

namespace braze {

class CudaHooks {
 public:
  CudaHooks(const Engine& engine, CudaSteps& steps, CuHandle stream)
      : engine_(engine), steps_(steps), stream_(stream) {}

  void run(LaunchTable& table, const braze_run_options& options);

 private:
  void call_debug(LaunchTable& table, size_t step, const braze_run_options& options);

  const Engine& engine_;
  CudaSteps& steps_;
  CuHandle stream_;
};

}  // namespace braze
