// What the host does among the work of a run on a GPU: it reads what decides what runs next, and calls
// routines of its own.
#pragma once

#include <cstdint>
#include <vector>

#include "cuda_device.h"
#include "cuda_objects.h"
#include "cuda_steps.h"
#include "launch_table.h"

namespace braze {

// All of one context, and of its own stream. The GPU's context must be current.
class CudaHost {
 public:
  CudaHost(const CudaDevice& device, const Engine& engine, CudaSteps& steps);

  // As DeviceMemory has them.
  void read(const DeviceMemory::Read* reads, size_t count, CuHandle stream);
  void write(void* to, int64_t value, CuHandle stream);
  void copy(void* to, const void* from, int64_t bytes, CuHandle stream) const;
  // Until all work before is done; throws what its steps reported.
  void wait(CuHandle stream);
  // A step that calls a routine of the host, on copies of its tensors.
  void call(LaunchTable& table, size_t step, CuHandle stream);

 private:
  bool is_on_host(const void* from) const;
  void fetch(void* pinned, const void* from, int64_t bytes, CuHandle stream) const;

  const CudaDevice& device_;
  const Engine& engine_;
  CudaSteps& steps_;
  PinnedMemory read_;     // words on their way
  PinnedMemory written_;  // the same
  size_t num_written_ = 0;  // since the last wait
  PinnedMemory tensors_;    // of a call
};

}  // namespace braze
