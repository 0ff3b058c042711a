// Structs of braze.h that start with struct_size, from and to callers built with another version of
// the header.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "error.h"

namespace braze {

// first_bytes: the size of the struct in the first version of the header that had it.
inline void check_struct_size(uint64_t size, size_t first_bytes, const char* name) {
  if (size < first_bytes) {
    fail(BRAZE_ERROR_EXECUTION, "struct_size of ", name, " is ", size, ", below ", first_bytes,
         "; set it to sizeof(", name, ")");
  }
}

// A caller's struct as this library knows it; what the caller does not know stays zero. What this
// library does not know must be zero, or the caller would not get what it asked for.
template <class T>
T read_struct(const T& given, size_t first_bytes, const char* name) {
  check_struct_size(given.struct_size, first_bytes, name);
  const auto* const bytes = reinterpret_cast<const unsigned char*>(&given);
  for (uint64_t at = sizeof(T); at < given.struct_size; ++at) {
    if (bytes[at]) {
      fail(BRAZE_ERROR_EXECUTION, name, " uses fields this version of the library does not know; ",
           "upgrade braze");
    }
  }
  T out = {};
  std::memcpy(&out, bytes, std::min<size_t>(sizeof(T), given.struct_size));
  out.struct_size = sizeof(T);
  return out;
}

// Fills a caller's struct as far as the caller knows it.
template <class T>
void write_struct(T value, T& out, size_t first_bytes, const char* name) {
  check_struct_size(out.struct_size, first_bytes, name);
  value.struct_size = out.struct_size;
  std::memcpy(&out, &value, std::min<size_t>(sizeof(T), out.struct_size));
}

}  // namespace braze
