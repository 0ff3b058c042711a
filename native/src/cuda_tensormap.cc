#include "cuda_tensormap.h"

#include "cuda_driver.h"
#include "error.h"

namespace braze {
namespace {

constexpr int kNoInterleave = 0;  // CU_TENSOR_MAP_INTERLEAVE_NONE
constexpr int kPromote128 = 2;    // CU_TENSOR_MAP_L2_PROMOTION_L2_128B
constexpr int kZeroFill = 0;      // CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE

// CU_TENSOR_MAP_DATA_TYPE_UINT8, 16, 32 or 64: bytes are moved and zeros filled in, no more.
int element_of(int64_t bytes) { return bytes == 1 ? 0 : bytes == 2 ? 1 : bytes == 4 ? 2 : 4; }

}  // namespace

void TensorMaps::append(const Launch& launch, void* const* pointers, const Shapes& shapes,
                        std::vector<void*>& arguments) {
  if (launch.maps.empty()) return;
  encoded_.resize(launch.maps.size());
  for (size_t i = 0; i < launch.maps.size(); ++i) {
    const TensorMap& m = launch.maps[i];
    Encoded& out = encoded_[i];
    const size_t rank = m.shape.size();
    const int64_t bytes = format::kDTypes[m.dtype].bytes;
    // The driver counts from the innermost axis; Triton, as the plan does, from the outermost.
    uint64_t shape[5] = {};
    uint64_t strides[5] = {};
    uint32_t box[5] = {};
    const uint32_t ones[5] = {1, 1, 1, 1, 1};
    arguments.push_back(out.map);
    for (size_t k = 0; k < rank; ++k) {
      const int64_t size = shapes.at(m.shape[k]);
      if (size > INT32_MAX) {
        fail(BRAZE_ERROR_EXECUTION, "step '", launch.name, "' copies boxes of a tensor with ", size,
             " elements along an axis, and a GPU counts them in 32 bits; use smaller shapes");
      }
      const int64_t stride = k + 1 < rank ? shapes.at(m.strides[k]) : 1;
      out.shape[k] = static_cast<int32_t>(size);
      out.strides[k] = stride;
      shape[rank - 1 - k] = static_cast<uint64_t>(size);
      if (k + 1 < rank) strides[rank - 2 - k] = static_cast<uint64_t>(stride) * static_cast<uint64_t>(bytes);
      box[rank - 1 - k] = static_cast<uint32_t>(m.box[k]);
    }
    for (size_t k = 0; k < rank; ++k) arguments.push_back(&out.shape[k]);
    for (size_t k = 0; k < rank; ++k) arguments.push_back(&out.strides[k]);
    const int status = CudaDriver::get().tensor_map(
        out.map, element_of(bytes), static_cast<uint32_t>(rank), pointers[m.buffer], shape, strides,
        box, ones, kNoInterleave, static_cast<int>(m.swizzle), kPromote128, kZeroFill);
    cuda_check(status, cat("mapping a tensor of ", launch.name).c_str());
  }
}

}  // namespace braze
