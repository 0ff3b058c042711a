// Runs the steps of a table one by one, each timed, with a call of the hooks after each.
#pragma once

#include "braze.h"
#include "cuda_host.h"
#include "cuda_objects.h"
#include "cuda_steps.h"
#include "flow_walk.h"
#include "launch_table.h"

namespace braze {

// For FlowWalk. What the GPU does is timed by events, what the host does by its clock.
class CudaHooks {
 public:
  using Clock = std::chrono::steady_clock;

  CudaHooks(const Engine& engine, LaunchTable& table, CudaSteps& steps, CudaHost& host,
            const braze_run_options& options, CuHandle stream);

  void run(size_t index, const Segment& segment);
  void steered(size_t step, Clock::time_point start);

 private:
  void after_step(size_t step, int64_t ns);
  void call_debug(size_t step);

  const Engine& engine_;
  LaunchTable& table_;
  CudaSteps& steps_;
  CudaHost& host_;
  const braze_run_options& options_;
  const CuHandle stream_;
  CudaEvent start_;
  CudaEvent end_;
};

}  // namespace braze
