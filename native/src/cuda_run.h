// Runs the launch tables of one context on a GPU, each as one CUDA graph.
#pragma once

#include <cstdint>
#include <vector>

#include "braze.h"
#include "cuda_device.h"
#include "cuda_graphs.h"
#include "cuda_objects.h"
#include "cuda_steps.h"
#include "launch_table.h"

namespace braze {

// Caller memory may lie on the host, and is copied then, or on the device, and is used in place.
class CudaRun : public Runner {
 public:
  CudaRun(CudaDevice& device, const Engine& engine);
  ~CudaRun() override;
  CudaRun(const CudaRun&) = delete;
  CudaRun& operator=(const CudaRun&) = delete;

  void run(LaunchTable& table, const braze_memory* memory,
           const braze_run_options& options) override;
  void forget(const LaunchTable& table) noexcept override;

 private:
  // What lives in the GPU's context; goes away while that is current.
  struct Resources {
    Resources(CudaDevice& device, const Engine& engine);
    CudaStream stream;
    CudaGraphs graphs;
    CudaSteps steps;
  };

  void check_values(const braze_memory* memory) const;
  void place(LaunchTable& table);
  void issue(LaunchTable& table, const braze_run_options& options);
  void copy_in(const LaunchTable& table);
  void copy_out(const LaunchTable& table);
  void launch(LaunchTable& table);
  void run_with_hooks(LaunchTable& table, const braze_run_options& options);
  void call_debug(LaunchTable& table, size_t step, const braze_run_options& options);
  bool is_staged(size_t binding) const { return addresses_[binding] == staged_[binding].data(); }
  CuHandle stream() const { return resources_->stream.get(); }

  CudaDevice& device_;
  const Engine& engine_;
  std::vector<Arena> staged_;              // device memory of each binding, made when needed
  std::vector<unsigned char*> addresses_;  // where each binding's tensor lies on the device
  std::unique_ptr<Resources> resources_;
};

}  // namespace braze
