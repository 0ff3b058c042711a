#include "cuda_flow.h"

namespace braze {

CuHandle CudaFlow::graph(size_t index, const Segment& segment) {
  const CudaGraphs::Key key{&table_, index, parts_.addresses};
  const CuHandle found = parts_.graphs.find(key);
  if (found) return found;
  return parts_.graphs.make(key, parts_.own_stream, [&] {
    parts_.lanes.record(table_, segment, parts_.steps, parts_.own_stream);
  });
}

void CudaFlow::run(size_t index, const Segment& segment) {
  using Clock = std::chrono::steady_clock;
  if (segment.host_call) return parts_.host.call(table_, segment.begin, stream_);
  const CuHandle ready = with_graphs_ && !segment.late ? graph(index, segment) : nullptr;
  const Clock::time_point start = Clock::now();
  if (ready) {
    cuda_check(CudaDriver::get().graph_launch(ready, stream_), "launching the network");
  } else {
    parts_.steps.begin();
    bool after_launch = false;
    for (size_t step = segment.begin; step < segment.end; ++step) {
      after_launch = parts_.steps.issue(table_, step, stream_, after_launch);
    }
  }
  enqueue_ns_ += std::chrono::nanoseconds(Clock::now() - start).count();
}

}  // namespace braze
