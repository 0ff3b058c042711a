// Tensor maps: what a GPU must know of a tensor to copy boxes of it into shared memory.
#pragma once

#include <cstdint>
#include <vector>

#include "plan.h"
#include "shapes.h"

namespace braze {

// The encoded maps of one launch at a time.
class TensorMaps {
 public:
  // Appends the first arguments of a kernel: each map, its shape (int32) and its strides (int64).
  // They point into this object until the next call, and hold the addresses that `pointers`, one a
  // buffer of the launch, have now. Throws an execution error where the driver does not take a tensor.
  void append(const Launch& launch, void* const* pointers, const Shapes& shapes,
              std::vector<void*>& arguments);

 private:
  struct Encoded {
    alignas(64) unsigned char map[128];  // CUtensorMap
    int32_t shape[5];
    int64_t strides[5];
  };

  std::vector<Encoded> encoded_;
};

}  // namespace braze
