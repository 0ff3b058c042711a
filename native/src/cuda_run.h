// Runs the steps of one launch table on a GPU, as one CUDA graph.
#pragma once

#include <cstdint>
#include <vector>

#include "braze.h"
#include "cuda_device.h"
#include "launch_table.h"

namespace braze {

// Caller memory may lie on the host, and is copied then, or on the device, and is used in place.
// The graph is captured on the first run and again when addresses of the device's change.
class CudaRun : public Runner {
 public:
  CudaRun(CudaDevice& device, const Engine& engine, LaunchTable& table);
  ~CudaRun() override;
  CudaRun(const CudaRun&) = delete;
  CudaRun& operator=(const CudaRun&) = delete;

  void run(const braze_memory* memory, const braze_run_options& options) override;

 private:
  void check_values(const braze_memory* memory) const;
  void place(const braze_memory* memory);
  void copy_in(const braze_memory* memory);
  void copy_out(const braze_memory* memory);
  void launch_steps();
  void launch_step(size_t step, bool early);
  void capture();
  void drop_graph();
  void run_with_hooks(const braze_run_options& options);
  void call_debug(size_t step, const braze_run_options& options);
  bool is_staged(size_t binding) const { return addresses_[binding] == staged_[binding].data(); }

  CudaDevice& device_;
  const Engine& engine_;
  LaunchTable& table_;
  CuHandle stream_ = nullptr;
  CuHandle graph_ = nullptr;
  Arena statuses_;                    // a word for each step
  Arena counters_;                    // of all steps, zero between runs
  std::vector<int64_t> first_counter_;  // of each step
  std::vector<Arena> staged_;         // device memory of each binding, made when needed
  std::vector<unsigned char*> addresses_;  // where each binding's tensor lies on the device
  std::vector<void*> arguments_;           // of the launch that is being made
  std::vector<int32_t> words_;
};

}  // namespace braze
