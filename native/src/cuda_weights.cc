#include "cuda_weights.h"

#include <algorithm>
#include <cstring>

#include "error.h"

namespace braze {
namespace {

using format::BufferKind;

int64_t aligned(int64_t bytes) {
  constexpr int64_t unit = CudaWeights::kAlignment;
  return (bytes + unit - 1) / unit * unit;
}

// Up to where the next weight begins: a buffer says its size by the shape program, of a run.
std::map<int64_t, int64_t> sizes_of(const Plan& plan, int64_t section_bytes) {
  std::map<int64_t, int64_t> out;
  for (const Buffer& b : plan.buffers) {
    if (b.kind == BufferKind::kWeight) out[b.offset] = 0;
  }
  int64_t end = section_bytes;
  for (auto at = out.rbegin(); at != out.rend(); ++at) {
    at->second = end - at->first;
    end = at->first;
  }
  return out;
}

// The most that one step reads.
int64_t largest_step(const Plan& plan, const std::map<int64_t, int64_t>& sizes) {
  int64_t most = 0;
  for (const Step* const step : plan.every_step) {
    int64_t bytes = 0;
    for (const BufferRef& ref : buffers_of(*step)) {
      const Buffer& b = plan.buffers[static_cast<size_t>(ref.buffer)];
      if (b.kind == BufferKind::kWeight) bytes += aligned(sizes.at(b.offset));
    }
    most = std::max(most, bytes);
  }
  return most;
}

}  // namespace

std::vector<BufferRef> buffers_of(const Step& step) {
  if (const auto* const launch = std::get_if<Launch>(&step)) return launch->buffers;
  if (const auto* const call = std::get_if<LibraryCall>(&step)) return call->buffers;
  if (const auto* const copy = std::get_if<Copy>(&step)) return {copy->source, copy->target};
  return {};
}

CudaWeights::CudaWeights(Device& device, const Plan& plan, const Section& section, int64_t budget)
    : section_(section.data) {
  const auto total = static_cast<int64_t>(section.size);
  if (budget < 0 || budget >= total) {
    all_ = Arena(device, total);
    if (total) device.copy(all_.data(), section.data, total);
    return;
  }
  ring_sizes_ = sizes_of(plan, total);
  // one step's weights are copied while those of another are read
  ring_bytes_ = 2 * largest_step(plan, ring_sizes_);
  if (budget < ring_bytes_) {
    fail(BRAZE_ERROR_EXECUTION, "a weight budget of ", budget, " bytes is too small: this engine needs ",
         ring_bytes_, " to stream its ", total, " bytes of weights; give more");
  }
  divide(device, section, budget - ring_bytes_);
}

// The smallest weights stay on the device, since large ones are copied faster by the byte.
void CudaWeights::divide(Device& device, const Section& section, int64_t budget) {
  std::vector<std::pair<int64_t, int64_t>> by_size;  // bytes, offset
  for (const auto& [offset, bytes] : ring_sizes_) by_size.emplace_back(bytes, offset);
  std::sort(by_size.begin(), by_size.end());
  int64_t kept = 0;
  int64_t streamed = 0;
  for (const auto& [bytes, offset] : by_size) {
    const bool fits = kept + aligned(bytes) <= budget;
    int64_t& end = fits ? kept : streamed;
    (fits ? places_ : host_places_)[offset] = end;
    end += aligned(bytes);
  }
  kept_ = Arena(device, kept);
  host_ = PinnedMemory(static_cast<size_t>(streamed));
  for (const auto& [offset, place] : places_) {
    const int64_t bytes = ring_sizes_[offset];
    if (bytes) device.copy(kept_.data() + place, section.data + offset, bytes);
  }
  for (const auto& [offset, place] : host_places_) {
    std::memcpy(host_.data() + place, section.data + offset, static_cast<size_t>(ring_sizes_[offset]));
  }
}

unsigned char* CudaWeights::resident(int64_t offset) const {
  const auto found = places_.find(offset);
  return found == places_.end() ? nullptr : kept_.data() + found->second;
}

const unsigned char* CudaWeights::pinned(int64_t offset) const {
  return host_.data() + host_places_.at(offset);
}

}  // namespace braze
