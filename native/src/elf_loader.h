// Loads relocatable ELF objects of generated kernels: position independent, self-contained.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "braze.h"

namespace braze {

struct ObjectBytes {
  const unsigned char* data;
  size_t size;
};

// Executable memory with the code of one or more objects. Code is never writable and executable
// at once. Throws a compile error that names the section or symbol it cannot load.
class CodeImage {
 public:
  explicit CodeImage(const std::vector<ObjectBytes>& objects);
  ~CodeImage();
  CodeImage(const CodeImage&) = delete;
  CodeImage& operator=(const CodeImage&) = delete;

  // The function `entry` of object number `object`.
  braze_kernel_fn find(size_t object, std::string_view entry) const;

 private:
  struct Symbol {
    std::string_view name;  // points into the object's bytes, which must outlive the image
    uintptr_t address;
  };

  void load(const std::vector<ObjectBytes>& objects);

  unsigned char* base_ = nullptr;
  size_t bytes_ = 0;
  std::vector<std::vector<Symbol>> functions_;
};

}  // namespace braze
