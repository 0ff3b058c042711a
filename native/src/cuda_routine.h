// A library call of a plan on a GPU: a routine of a library that works on the caller's stream.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "cuda_driver.h"
#include "engine_file.h"
#include "plan.h"

namespace braze {

class CudaRoutine {
 public:
  virtual ~CudaRoutine() = default;
  // Puts the work on `stream`, which may be in capture: no allocation, no synchronization. Buffers
  // are addresses of the device. Contexts of one engine may call it at the same time.
  virtual void enqueue(void* const* buffers, const int64_t* params, CuHandle stream) = 0;
  // The bytes it needs of each buffer of its step.
  virtual const std::vector<int64_t>& needs() const = 0;
};

// Throws a target error for a library or routine that is not there. The GPU's context is current.
std::unique_ptr<CudaRoutine> open_cuda_routine(const Plan& plan, const LibraryCall& step,
                                               const Section& code);

}  // namespace braze
