// Objects of the driver that end with their owner. The owner's context must be current then, except
// in a forked child, where all is the parent's.
#pragma once

#include <utility>

#include "cuda_driver.h"

namespace braze {

template <int (*CudaDriver::*kDestroy)(CuHandle)>
class CudaObject {
 public:
  CudaObject() = default;
  ~CudaObject() { reset(); }
  CudaObject(CudaObject&& other) noexcept { std::swap(handle_, other.handle_); }
  CudaObject& operator=(CudaObject&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }

  CuHandle get() const { return handle_; }
  explicit operator bool() const { return handle_ != nullptr; }
  // Where a function of the driver writes the new handle.
  CuHandle* out() {
    reset();
    return &handle_;
  }
  void reset() {
    if (handle_ && !CudaDriver::get().is_lost()) (CudaDriver::get().*kDestroy)(handle_);
    handle_ = nullptr;
  }

 private:
  CuHandle handle_ = nullptr;
};

using CudaStream = CudaObject<&CudaDriver::stream_destroy>;
using CudaEvent = CudaObject<&CudaDriver::event_destroy>;
using CudaGraph = CudaObject<&CudaDriver::graph_destroy>;
using CudaGraphExec = CudaObject<&CudaDriver::graph_exec_destroy>;

// Memory of the host that the GPU reads and writes too, at the same address.
class PinnedMemory {
 public:
  PinnedMemory() = default;
  // Throws an execution error without memory. Zero at first.
  explicit PinnedMemory(size_t bytes);
  ~PinnedMemory() {
    if (data_ && !CudaDriver::get().is_lost()) CudaDriver::get().host_free(data_);
  }
  PinnedMemory(PinnedMemory&& other) noexcept { *this = std::move(other); }
  PinnedMemory& operator=(PinnedMemory&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }

  unsigned char* data() const { return static_cast<unsigned char*>(data_); }
  size_t bytes() const { return bytes_; }
  // To one who frees it.
  void* give_away() { return std::exchange(data_, nullptr); }

 private:
  void* data_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace braze
