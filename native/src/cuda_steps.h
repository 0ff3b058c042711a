// Puts the steps of a plan on a stream of a GPU, one by one; in capture or not.
#pragma once

#include <vector>

#include "cuda_device.h"
#include "cuda_objects.h"
#include "cuda_ring.h"
#include "cuda_tensormap.h"
#include "launch_table.h"

namespace braze {

class CudaSteps {
 public:
  // The device's context must be current, here and in all calls.
  CudaSteps(CudaDevice& device, const Engine& engine);

  // Before the steps of a run or a capture.
  void begin() { ring_.begin(); }
  // The table points to memory of the device. after_launch: what was put on the stream last is a
  // kernel, so that one which waits by itself may start while that runs. Returns whether the next
  // step may be told so.
  bool issue(LaunchTable& table, size_t step, CuHandle stream, bool after_launch);
  // After a run: throws the error of the first step that reported bad data, and forgets it.
  void check();
  void clear();  // what the steps of a run that failed reported

 private:
  struct Place {
    LaunchTable& table;
    size_t step;
    CuHandle stream;
    bool after_launch;
  };

  bool issue(const Place& at, const Launch& launch);
  bool issue(const Place& at, const LibraryCall& call);
  bool issue(const Place& at, const Copy& copy);
  template <class Steering>
  bool issue(const Place& at, const Steering&) {  // which is the host's
    return at.after_launch;
  }

  const Kernel& kernel_of(const Launch& launch) const;
  void collect_arguments(const Place& at, const Launch& launch);
  std::vector<CuAttribute> attributes(const Place& at, const Launch& launch) const;

  const CudaDevice& device_;
  const Engine& engine_;
  PinnedMemory statuses_;         // a word for each step, which kernels write to on bad data
  Arena counters_;                // of all steps, zero between runs
  std::vector<CuAddress> first_counter_;  // of each step
  std::vector<void*> arguments_;          // of the launch that is being made, and some it points to
  TensorMaps maps_;                       // of that launch
  CudaRing ring_;                         // of weights that do not stay on the device
  CuAddress status_ = 0;
  CuAddress unused_ = 0;
};

}  // namespace braze
