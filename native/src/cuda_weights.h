// The weights of an engine on a GPU: all of them there, or within a budget, with the rest in pinned
// memory of the host, copied for each step that reads them.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "cuda_objects.h"
#include "device.h"
#include "plan.h"

namespace braze {

class CudaWeights {
 public:
  CudaWeights() = default;
  // budget: bytes of the GPU for weights, those of one context's ring included; negative: no limit.
  // Throws an execution error where the budget is below what one step needs.
  CudaWeights(Device& device, const Plan& plan, const Section& section, int64_t budget);

  // From where the offsets of weights count. With a budget no kernel may read there.
  const unsigned char* base() const { return all_.data() ? all_.data() : section_; }
  bool is_streamed() const { return !ring_sizes_.empty(); }
  int64_t ring_bytes() const { return ring_bytes_; }
  // With a budget: where a weight stays on the device, or null.
  unsigned char* resident(int64_t offset) const;
  // Else its bytes in pinned memory.
  const unsigned char* pinned(int64_t offset) const;
  int64_t bytes(int64_t offset) const { return ring_sizes_.at(offset); }

  static constexpr int64_t kAlignment = 256;

 private:
  void divide(Device& device, const Section& section, int64_t budget);

  Arena all_;
  const unsigned char* section_ = nullptr;
  std::map<int64_t, int64_t> ring_sizes_;  // offset of every weight -> its bytes, aligned
  int64_t ring_bytes_ = 0;
  Arena kept_;
  std::map<int64_t, int64_t> places_;  // in kept_, or (from streamed_) in host_
  std::map<int64_t, int64_t> host_places_;
  PinnedMemory host_;
};

// The buffers of a step that launches, calls or copies.
std::vector<BufferRef> buffers_of(const Step& step);

}  // namespace braze
