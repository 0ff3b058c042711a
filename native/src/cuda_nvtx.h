// Ranges for profilers such as Nsight Systems, where NVIDIA's library for them is installed.
#pragma once

namespace braze {

// A range of this thread while it lives; nothing without the library.
class NvtxRange {
 public:
  explicit NvtxRange(const char* name);
  ~NvtxRange();
  NvtxRange(const NvtxRange&) = delete;
  NvtxRange& operator=(const NvtxRange&) = delete;
};

}  // namespace braze
