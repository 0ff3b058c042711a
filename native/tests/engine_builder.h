// Builds small engine files in memory, so that the native tests need no Python.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "braze.h"

namespace braze::test {

// The bytes of the object file of kernels.cc.
std::string kernel_object();

// The file of a manifest with its sections, header and checksums.
std::string engine_file(const std::string& manifest, const std::string& code,
                        const std::string& weights);

// y = x + w, t = table(y), ..., with x float [n, 16], n in 1..max_rows; `steps` steps.
struct Chain {
  int steps = 3;
  int max_rows = 64;
  bool parallel = true;
  const char* isa = "x86-64";
};
std::string chain_manifest(const Chain& chain, size_t object_bytes);
std::string chain_engine(const Chain& chain);
std::vector<float> chain_weights(const Chain& chain);
std::vector<float> chain_reference(const Chain& chain, const std::vector<float>& x);

constexpr int64_t kChainColumns = 16;

// Recomputes checksums and header after a change inside the sections.
void fix_checksums(std::string& file);

// Leaves the weights out of a file of engine_file, or, with `said_only`, only says so.
void strip_weights(std::string& file, bool said_only = false);

// Memory aligned as BRAZE_BORROW wants it.
struct AlignedCopy {
  explicit AlignedCopy(const std::string& bytes);
  ~AlignedCopy();
  AlignedCopy(const AlignedCopy&) = delete;
  AlignedCopy& operator=(const AlignedCopy&) = delete;
  void* const data;
};

}  // namespace braze::test
