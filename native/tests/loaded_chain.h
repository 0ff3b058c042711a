// A chain engine (engine_builder.h) loaded through the C ABI.
#pragma once

#include "check.h"
#include "engine_builder.h"

namespace braze::test {

struct LoadedChain {
  explicit LoadedChain(const Chain& chain) : file(chain_engine(chain)) {
    CHECK_OK(braze_engine_load_memory(file.data, size(chain), BRAZE_BORROW, 0, &engine));
  }
  ~LoadedChain() { braze_engine_destroy(engine); }
  LoadedChain(const LoadedChain&) = delete;
  LoadedChain& operator=(const LoadedChain&) = delete;
  static uint64_t size(const Chain& chain) { return chain_engine(chain).size(); }

  AlignedCopy file;
  braze_engine* engine = nullptr;
};

}  // namespace braze::test
