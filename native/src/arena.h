// Working memory of a context: zero pages until touched, 64-byte aligned.
#pragma once

#include <cstddef>
#include <cstdint>

namespace braze {

class Arena {
 public:
  Arena() = default;
  // Throws an execution error when there is no memory.
  explicit Arena(int64_t bytes);
  ~Arena();
  Arena(Arena&& other) noexcept;
  Arena& operator=(Arena&& other) noexcept;

  unsigned char* data() const { return data_; }

 private:
  void* mapping_ = nullptr;
  size_t mapped_bytes_ = 0;
  unsigned char* data_ = nullptr;
};

}  // namespace braze
