// An engine of the stub tests with a context, and what the tests ask of both.
#pragma once

#include <dlfcn.h>

#include <string>
#include <vector>

#include "check.h"
#include "cuda_stub.h"
#include "plan_builder.h"

namespace braze::test {

// Calls that may fail one after the other: the first failure ends a use, all is destroyed.
struct EngineUse {
  explicit EngineUse(const std::string& bytes) : file(bytes), size(bytes.size()) {}
  ~EngineUse() { end(); }
  EngineUse(const EngineUse&) = delete;
  EngineUse& operator=(const EngineUse&) = delete;

  braze_status load() {
    const braze_engine_options options = {sizeof(options), 1, BRAZE_BORROW, weight_budget};
    return braze_engine_load_with(nullptr, file.data, size, &options, &engine);
  }
  braze_status create(int32_t extra_streams = -1, int32_t priority = 0) {
    const braze_context_options options = {sizeof(options), -1, priority, extra_streams};
    return braze_context_create_with(engine, &options, &context);
  }
  // dims: of all inputs; tensors: inputs, then outputs. The first run makes the context.
  braze_status run_on(const std::vector<int64_t>& dims,
                      const std::vector<std::vector<float>*>& tensors,
                      const braze_run_options* options = nullptr) {
    std::vector<braze_memory> memory;
    for (std::vector<float>* t : tensors) {
      memory.push_back({t->data(), static_cast<int64_t>(t->size() * 4)});
    }
    const braze_status status = context ? BRAZE_OK : create();
    if (status != BRAZE_OK) return status;
    return braze_context_run(context, dims.data(), static_cast<int32_t>(dims.size()), memory.data(),
                             static_cast<int32_t>(memory.size()), options);
  }

  void end() {
    braze_context_destroy(context);
    braze_engine_destroy(engine);
    context = nullptr;
    engine = nullptr;
  }

  AlignedCopy file;
  const uint64_t size;
  int64_t weight_budget = -1;
  braze_engine* engine = nullptr;
  braze_context* context = nullptr;
};

inline void refused(const std::string& engine, braze_status status, const char* text) {
  EngineUse use(engine);
  const braze_status got = use.load();
  if (got != status || !says(text)) stop(__FILE__, __LINE__, cat(got, ": ", braze_last_error()));
}

// The controls of a library that stands in for one of NVIDIA. Opening it lets the runtime find it,
// so only after what is tested without it.
struct LibraryStub {
  const char* path;
  const char* prefix;  // of its functions

  template <class F>
  F find(const char* name) const {
    void* const library = dlopen(path, RTLD_NOW);
    CHECK(library);
    void* const symbol = dlsym(library, cat(prefix, name).c_str());
    CHECK(symbol);
    return reinterpret_cast<F>(symbol);
  }
  // Fails the call-th call from now on; 0: none.
  void fail(int64_t call) const { find<void (*)(int64_t)>("_fail")(call); }
  void check_clean() const {
    if (*stub_live()) stop(__FILE__, __LINE__, stub_live());
    if (*stub_violations()) stop(__FILE__, __LINE__, stub_violations());
    CHECK(find<int (*)()>("_live")() == 0);
  }
};

// Every call of the library that can fail, of loading an engine and of a run: one typed error, and
// nothing is left. calls: how many there are.
template <class Use>
void fail_at_every_call(const LibraryStub& library, const std::string& engine, int64_t calls) {
  for (int64_t call = 1;; ++call) {
    bool failed = false;
    {
      Use use(engine);
      library.fail(call);
      braze_status status = use.load();
      if (status == BRAZE_OK) status = use.run();
      failed = status != BRAZE_OK;
      if (failed) CHECK(status == BRAZE_ERROR_EXECUTION || status == BRAZE_ERROR_TARGET);
      library.fail(0);
      if (failed && use.context) CHECK_OK(use.run());  // it works again
    }
    library.check_clean();
    if (!failed) {
      CHECK(call == calls + 1);
      return;
    }
  }
}

}  // namespace braze::test
