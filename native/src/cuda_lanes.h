// Branches of a network that do not depend on each other, side by side on several streams.
#pragma once

#include <cstdint>
#include <vector>

#include "cuda_objects.h"
#include "cuda_steps.h"
#include "launch_table.h"

namespace braze {

// Where each step goes: a lane, and the steps in other lanes that it has to wait for. Lane 0 has the
// first step, and waits for all others at the end.
struct Lanes {
  struct Place {
    size_t lane = 0;
    std::vector<size_t> waits;
    bool forks = false;   // first of its lane, and waits for no step: begins where lane 0 does
    bool marked = false;  // a step in another lane, or the end, waits for it
  };
  std::vector<Place> steps;
  std::vector<size_t> joins;  // steps that lane 0 waits for at the end
  size_t count = 1;
  bool forks = false;  // any does
};

// By the dependencies and shared memory of the steps of a straight segment, numbered from its first;
// one lane where all must follow each other.
Lanes plan_lanes(LaunchTable& table, const Segment& segment, size_t most_lanes);

// The streams of the lanes beyond the first, and the marks they wait for.
class CudaLanes {
 public:
  CudaLanes(int32_t extra_streams, int priority);

  // Puts the steps of a straight segment on `stream`, which is in capture, and streams that branch off
  // and join it.
  void record(LaunchTable& table, const Segment& segment, CudaSteps& steps, CuHandle stream);

 private:
  CuHandle mark();

  const size_t most_;
  const int priority_;
  std::vector<CudaStream> streams_;
  std::vector<CudaEvent> marks_;
  size_t marks_used_ = 0;
};

}  // namespace braze
