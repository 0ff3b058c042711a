// The steps of a run on a GPU: straight segments as CUDA graphs, what the host does between them.
#pragma once

#include <cstdint>
#include <vector>

#include "braze.h"
#include "cuda_graphs.h"
#include "cuda_host.h"
#include "cuda_lanes.h"
#include "cuda_steps.h"
#include "flow_walk.h"
#include "launch_table.h"

namespace braze {

// For FlowWalk. A segment whose sizes are known before the run is one graph, unless graphs are not
// wanted; others are put on the stream step by step.
class CudaFlow {
 public:
  // What the runs of a context share. addresses: of the tensors that are known before the run.
  struct Parts {
    CudaGraphs& graphs;
    CudaLanes& lanes;
    CudaSteps& steps;
    CudaHost& host;
    CuHandle own_stream;  // to record graphs on
    const std::vector<unsigned char*>& addresses;
  };

  CudaFlow(LaunchTable& table, const Parts& parts, bool with_graphs, CuHandle stream)
      : table_(table), parts_(parts), with_graphs_(with_graphs), stream_(stream) {}

  void run(size_t index, const Segment& segment);
  void steered(size_t, std::chrono::steady_clock::time_point) {}

  int64_t enqueue_ns() const { return enqueue_ns_; }  // what launching has taken

 private:
  CuHandle graph(size_t index, const Segment& segment);

  LaunchTable& table_;
  const Parts parts_;
  const bool with_graphs_;
  const CuHandle stream_;
  int64_t enqueue_ns_ = 0;
};

}  // namespace braze
