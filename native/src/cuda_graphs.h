// The CUDA graphs of one context, a few of them, the one used longest ago replaced first.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "cuda_objects.h"

namespace braze {

class LaunchTable;

// A graph holds for one launch table with its tensors at certain addresses. A graph that is to be
// replaced is updated where the driver can, which is cheaper than a new one and needs no memory.
class CudaGraphs {
 public:
  using Addresses = std::vector<unsigned char*>;

  static constexpr size_t kCapacity = 8;

  // The graph for a table and addresses, or null.
  CuHandle find(const LaunchTable* table, const Addresses& addresses);
  // Makes it: captures what `record` puts on `stream`.
  CuHandle make(const LaunchTable* table, const Addresses& addresses, CuHandle stream,
                const std::function<void()>& record);
  // No more runs of this table; its graphs may be updated to others.
  void forget(const LaunchTable* table);

 private:
  struct Entry {
    const LaunchTable* table = nullptr;
    Addresses addresses;
    CudaGraphExec exec;
    uint64_t used = 0;
  };

  Entry& free_entry();

  std::vector<Entry> entries_;
  uint64_t clock_ = 0;
};

}  // namespace braze
