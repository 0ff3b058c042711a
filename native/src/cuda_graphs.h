// The CUDA graphs of one context, a few of them, the one used longest ago replaced first.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "cuda_objects.h"

namespace braze {

class LaunchTable;

// A graph holds for one segment of a launch table with its tensors at certain addresses. A graph that
// is to be replaced is updated where the driver can, which is cheaper than a new one and needs no memory.
class CudaGraphs {
 public:
  struct Key {
    const LaunchTable* table;
    size_t segment;
    const std::vector<unsigned char*>& addresses;
  };

  // segments: how many of a plan become graphs.
  explicit CudaGraphs(size_t segments) : capacity_(kOfEachSegment * segments) {}

  // The graph of a key, or null.
  CuHandle find(const Key& key);
  // Makes it: captures what `record` puts on `stream`.
  CuHandle make(const Key& key, CuHandle stream, const std::function<void()>& record);
  // No more runs of this table; its graphs may be updated to others.
  void forget(const LaunchTable* table);

 private:
  static constexpr size_t kOfEachSegment = 8;

  struct Entry {
    const LaunchTable* table = nullptr;  // null: free
    size_t segment = 0;
    std::vector<unsigned char*> addresses;
    CudaGraphExec exec;
    uint64_t used = 0;
  };

  Entry& free_entry();

  const size_t capacity_;
  std::vector<Entry> entries_;
  uint64_t clock_ = 0;
};

}  // namespace braze
