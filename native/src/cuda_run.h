// Runs the launch tables of one context on a GPU.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "braze.h"
#include "cuda_device.h"
#include "cuda_graphs.h"
#include "cuda_host.h"
#include "cuda_lanes.h"
#include "cuda_memory.h"
#include "cuda_objects.h"
#include "cuda_steps.h"
#include "launch_table.h"

namespace braze {

// Caller memory may lie on the host, and is copied then, or on the device, and is used in place.
class CudaRun : public Runner {
 public:
  CudaRun(CudaDevice& device, const Engine& engine, const ContextOptions& options);
  ~CudaRun() override;
  CudaRun(const CudaRun&) = delete;
  CudaRun& operator=(const CudaRun&) = delete;

  void run(LaunchTable& table, const braze_memory* memory,
           const braze_run_options& options) override;
  void enqueue(LaunchTable& table, const braze_memory* memory, const braze_run_options& options,
               void* stream) override;
  void synchronize() override;
  void forget(const LaunchTable& table) noexcept override;

  // For the tables, in a run on the context's own stream.
  void read(const Read* reads, size_t count) override;
  void write(void* to, int64_t value) override;
  void copy(void* to, const void* from, int64_t bytes) override;
  void settle() override;
  unsigned char* place(size_t binding, unsigned char* data, int64_t bytes) override;

 private:
  struct Tensor {
    CallerMemory caller = {Whereabouts::kPageable, 0};
    unsigned char* address = nullptr;  // where kernels find it
    Arena staged;                      // memory of the device for it, made when needed
    bool is_staged() const { return address && address == staged.data(); }
  };
  // What lives in the GPU's context; goes away while that is current.
  struct Resources {
    Resources(CudaDevice& device, const Engine& engine, const ContextOptions& options);
    CudaStream stream;
    CudaEvent done;  // after the last run on a stream of the caller
    std::vector<CudaEvent> times;
    CudaGraphs graphs;
    CudaLanes lanes;
    CudaStaging staging;
    CudaSteps steps;
    CudaHost host;
  };

  void prepare(LaunchTable& table, const braze_memory* memory, const braze_run_options& options);
  void check_values(const braze_memory* memory) const;
  void place_all(LaunchTable& table);
  unsigned char* on_device(size_t binding, unsigned char* data, int64_t bytes);
  void issue(LaunchTable& table, const braze_run_options& options, CuHandle stream);
  void copy_in(const LaunchTable& table, CuHandle stream);
  void copy_out(const LaunchTable& table, CuHandle stream);
  void launch(LaunchTable& table, const braze_run_options& options, CuHandle stream);
  void wait(const braze_run_options& options);
  void wait_for_enqueued();
  void mark_time(const braze_run_options& options, size_t mark, CuHandle stream);
  void report_times(const braze_run_options& options);
  CuHandle stream() const { return resources_->stream.get(); }

  CudaDevice& device_;
  const Engine& engine_;
  std::vector<Tensor> tensors_;            // of each binding
  // Of the tensors, for the keys of graphs; null for those whose memory the run asks for.
  std::vector<unsigned char*> addresses_;
  bool enqueued_ = false;                  // a run on a stream of the caller may not be done
  unsigned long long enqueued_on_ = 0;     // the id of that stream: handles are used again
  int64_t enqueue_ns_ = 0;  // what launching the last run took
  std::unique_ptr<Resources> resources_;
};

}  // namespace braze
