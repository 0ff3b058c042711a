#include "cuda_hooks.h"

#include <cmath>

namespace braze {

void CudaHooks::run(LaunchTable& table, const braze_run_options& options) {
  const CudaDriver& driver = CudaDriver::get();
  CudaEvent start;
  CudaEvent end;
  cuda_check(driver.event_create(start.out(), 0), "making an event");
  cuda_check(driver.event_create(end.out(), 0), "making an event");
  steps_.begin();
  for (size_t step = 0; step < table.num_steps(); ++step) {
    cuda_check(driver.event_record(start.get(), stream_), "timing");
    steps_.issue(table, step, stream_, false);
    cuda_check(driver.event_record(end.get(), stream_), "timing");
    cuda_check(driver.event_wait(end.get()), "running the network");
    float ms = 0;
    cuda_check(driver.event_elapsed(&ms, start.get(), end.get()), "timing");
    if (options.profile) {
      options.profile(options.user, static_cast<int32_t>(step),
                      std::lround(static_cast<double>(ms) * 1e6));
    }
    if (options.debug) call_debug(table, step, options);
  }
}

void CudaHooks::call_debug(LaunchTable& table, size_t step, const braze_run_options& options) {
  const std::vector<DebugTensor>& debug = engine_.plan().debug;
  for (size_t d = 0; d < debug.size(); ++d) {
    if (debug[d].step != static_cast<int32_t>(step)) continue;
    const LaunchTable::DebugView view = table.debug_view(d);
    std::vector<unsigned char> host(static_cast<size_t>(view.bytes));
    if (view.bytes) {
      const CudaDriver& driver = CudaDriver::get();
      const auto from = reinterpret_cast<CuAddress>(view.data);
      cuda_check(driver.to_host(host.data(), from, host.size(), stream_), "copying a debug tensor");
      cuda_check(driver.stream_wait(stream_), "copying a debug tensor");
    }
    options.debug(options.user, static_cast<int32_t>(d), host.data(), view.dims.data(),
                  static_cast<int32_t>(view.dims.size()), view.bytes);
  }
}

}  // namespace braze
