#include "cuda_steps.h"

#include <algorithm>

#include "cuda_nvtx.h"
#include "error.h"

namespace braze {
namespace {

constexpr int kEarlyStart = 6;  // CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION

CuAddress address_of(const void* data) { return reinterpret_cast<CuAddress>(data); }

}  // namespace

CudaSteps::CudaSteps(CudaDevice& device, const Engine& engine)
    : device_(device),
      engine_(engine),
      statuses_(engine.plan().every_step.size() * sizeof(int32_t)),
      ring_(device, engine.plan(), device.weights()) {
  int64_t words = 0;
  for (const Step* const step : engine.plan().every_step) {
    first_counter_.push_back(static_cast<CuAddress>(words) * sizeof(int32_t));
    if (const auto* const launch = std::get_if<Launch>(step)) words += kernel_of(*launch).counters;
  }
  if (!words) return;
  counters_ = Arena(device, words * static_cast<int64_t>(sizeof(int32_t)));
  for (CuAddress& first : first_counter_) first += address_of(counters_.data());
}

bool CudaSteps::issue(LaunchTable& table, size_t step, CuHandle stream, bool after_launch) {
  const Step& which = *engine_.plan().every_step[step];
  const NvtxRange range(step_name(which).c_str());
  const bool waits = ring_.before(step, table.pointers(step), table.shapes(), stream);
  const Place at{table, step, stream, after_launch && !waits};
  const bool out = std::visit([&](const auto& s) { return issue(at, s); }, which);
  ring_.after(stream);
  return out;
}

const Kernel& CudaSteps::kernel_of(const Launch& launch) const {
  return engine_.plan().kernels[static_cast<size_t>(launch.kernel)];
}

// Triton's order: tensor maps, pointers, the status word, counters where there are any, sizes, then two scratch
// pointers that are not used.
void CudaSteps::collect_arguments(const Place& at, const Launch& launch) {
  void** const pointers = at.table.pointers(at.step);
  int64_t* const params = at.table.params(at.step);
  status_ = address_of(statuses_.data()) + at.step * sizeof(int32_t);
  arguments_.clear();
  maps_.append(launch, pointers, at.table.shapes(), arguments_);
  for (size_t i = 0; i < launch.buffers.size(); ++i) arguments_.push_back(&pointers[i]);
  arguments_.push_back(&status_);
  if (kernel_of(launch).counters) arguments_.push_back(&first_counter_[at.step]);
  for (size_t i = 0; i < launch.params.size(); ++i) arguments_.push_back(&params[i]);
  arguments_.push_back(&unused_);
  arguments_.push_back(&unused_);
}

// What cuLaunchKernelEx takes beyond the grid.
std::vector<CuAttribute> CudaSteps::attributes(const Place& at, const Launch& launch) const {
  std::vector<CuAttribute> out;
  if (at.after_launch && kernel_of(launch).waits) {
    CuAttribute& early = out.emplace_back();
    early.id = kEarlyStart;
    early.number = 1;
  }
  return out;
}

bool CudaSteps::issue(const Place& at, const Launch& launch) {
  const Kernel& k = kernel_of(launch);
  const std::vector<CuAttribute> extra = attributes(at, launch);
  CuLaunch config = {};
  for (size_t axis = 0; axis < 3; ++axis) {
    config.block[axis] = 1;
    config.grid[axis] = 1;
    if (axis >= launch.grid.size()) continue;
    const int64_t blocks = at.table.shapes().at(launch.grid[axis]);
    if (blocks <= 0) return at.after_launch;  // nothing to do
    config.grid[axis] = static_cast<unsigned>(blocks);
  }
  config.block[0] = static_cast<unsigned>(k.block);
  config.shared_bytes = static_cast<unsigned>(k.shared_bytes);
  config.stream = at.stream;
  config.attributes = extra.data();
  config.num_attributes = static_cast<unsigned>(extra.size());
  collect_arguments(at, launch);
  const CuHandle function = device_.function(launch.kernel);
  cuda_check(CudaDriver::get().launch(&config, function, arguments_.data(), nullptr),
             launch.name.c_str());
  return true;
}

bool CudaSteps::issue(const Place& at, const LibraryCall&) {
  device_.library_routine(at.step)
      .enqueue(at.table.pointers(at.step), at.table.params(at.step), at.stream);
  return false;
}

bool CudaSteps::issue(const Place& at, const Copy& copy) {
  void** const pointers = at.table.pointers(at.step);
  const auto bytes = static_cast<size_t>(at.table.params(at.step)[0]);
  if (bytes == 0 || pointers[0] == pointers[1]) return at.after_launch;
  cuda_check(CudaDriver::get().on_device(address_of(pointers[1]), address_of(pointers[0]), bytes,
                                         at.stream),
             copy.name.c_str());
  return false;
}

void CudaSteps::clear() {
  std::fill(statuses_.data(), statuses_.data() + statuses_.bytes(), static_cast<unsigned char>(0));
}

void CudaSteps::check() {
  auto* const words = reinterpret_cast<int32_t*>(statuses_.data());
  const size_t count = statuses_.bytes() / sizeof(int32_t);
  int32_t* const bad = std::find_if(words, words + count, [](int32_t word) { return word != 0; });
  if (bad == words + count) return;
  const int32_t status = *bad;
  clear();
  fail_step(engine_, static_cast<size_t>(bad - words), status);
}

}  // namespace braze
