// Where memory of the caller lies, and copies of it that let the GPU work on.
#pragma once

#include <array>
#include <cstddef>

#include "cuda_objects.h"

namespace braze {

enum class Whereabouts { kPageable, kPinned, kDevice };

struct CallerMemory {
  Whereabouts where;
  int device;  // of kDevice
};

CallerMemory find_memory(const void* data);

// Copies of pageable memory by way of a few pinned buffers, so that the GPU copies one while the host
// fills the next, and neither stops what other streams do.
class CudaStaging {
 public:
  static constexpr size_t kChunkBytes = size_t{1} << 20;

  // Returns when `from` is read; the copy itself is work of the stream.
  void to_device(CuAddress to, const void* from, size_t bytes, CuHandle stream);
  // Returns when the bytes are there.
  void to_host(void* to, CuAddress from, size_t bytes, CuHandle stream);

 private:
  struct Slot {
    CudaEvent free;  // when the GPU is done with it
    PinnedMemory memory;
    bool busy = false;
  };

  Slot& slot(size_t index, size_t bytes);
  static void wait(Slot& slot);

  std::array<Slot, 4> slots_;
};

}  // namespace braze
