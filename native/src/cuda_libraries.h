// The libraries of NVIDIA that steps of an engine may call, opened when an engine needs them.
#pragma once

#include <memory>
#include <string>

#include "cuda_routine.h"
#include "engine_file.h"
#include "plan.h"

namespace braze {

// Folders that are searched, separated by colons (braze_set_library_folders).
void set_library_folders(std::string folders);
// A library opened by name: from the folders of BRAZE_CUDA_LIBRARIES, those that were set, or where
// the loader finds it. Null where there is none.
void* open_cuda_library(const std::string& name);

// A product by cuBLASLt (cuda_blas.cc). Throws a target error for a library, version or algorithm
// that is not here, a format error for attributes or buffers that it does not take.
std::unique_ptr<CudaRoutine> open_matmul(const Plan& plan, const LibraryCall& step);

// A plan of cuDNN (cuda_dnn.cc), whose text lies in `code`. Throws the same.
std::unique_ptr<CudaRoutine> open_dnn_plan(const Plan& plan, const LibraryCall& step,
                                           const Section& code);

}  // namespace braze
