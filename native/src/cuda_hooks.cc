#include "cuda_hooks.h"

#include <cmath>

namespace braze {

CudaHooks::CudaHooks(const Engine& engine, LaunchTable& table, CudaSteps& steps, CudaHost& host,
                     const braze_run_options& options, CuHandle stream)
    : engine_(engine), table_(table), steps_(steps), host_(host), options_(options), stream_(stream) {
  const CudaDriver& driver = CudaDriver::get();
  cuda_check(driver.event_create(start_.out(), 0), "making an event");
  cuda_check(driver.event_create(end_.out(), 0), "making an event");
}

void CudaHooks::run(size_t, const Segment& segment) {
  const CudaDriver& driver = CudaDriver::get();
  if (segment.host_call) {
    const Clock::time_point start = Clock::now();
    host_.call(table_, segment.begin, stream_);
    return steered(segment.begin, start);
  }
  steps_.begin();
  for (size_t step = segment.begin; step < segment.end; ++step) {
    cuda_check(driver.event_record(start_.get(), stream_), "timing");
    steps_.issue(table_, step, stream_, false);
    cuda_check(driver.event_record(end_.get(), stream_), "timing");
    cuda_check(driver.event_wait(end_.get()), "running the network");
    float ms = 0;
    cuda_check(driver.event_elapsed(&ms, start_.get(), end_.get()), "timing");
    after_step(step, std::lround(static_cast<double>(ms) * 1e6));
  }
}

void CudaHooks::steered(size_t step, Clock::time_point start) {
  after_step(step, std::chrono::nanoseconds(Clock::now() - start).count());
}

void CudaHooks::after_step(size_t step, int64_t ns) {
  if (options_.profile) options_.profile(options_.user, static_cast<int32_t>(step), ns);
  if (options_.debug) call_debug(step);
}

void CudaHooks::call_debug(size_t step) {
  const std::vector<DebugTensor>& debug = engine_.plan().debug;
  for (size_t d = 0; d < debug.size(); ++d) {
    if (debug[d].step != static_cast<int32_t>(step)) continue;
    const LaunchTable::DebugView view = table_.debug_view(d);
    std::vector<unsigned char> host(static_cast<size_t>(view.bytes));
    if (view.bytes) {
      const CudaDriver& driver = CudaDriver::get();
      const auto from = reinterpret_cast<CuAddress>(view.data);
      cuda_check(driver.to_host(host.data(), from, host.size(), stream_), "copying a debug tensor");
      cuda_check(driver.stream_wait(stream_), "copying a debug tensor");
    }
    options_.debug(options_.user, static_cast<int32_t>(d), host.data(), view.dims.data(),
                   static_cast<int32_t>(view.dims.size()), view.bytes);
  }
}

}  // namespace braze
