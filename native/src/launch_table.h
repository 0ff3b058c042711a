// Everything a run needs for one set of input shapes: pointers, parameters, order.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "braze.h"
#include "engine.h"
#include "shapes.h"

namespace braze {

// Consecutive steps that need no barrier between them. Steps that are not parallel run on worker 0.
struct Phase {
  size_t begin;
  size_t end;
  bool parallel;  // any of them is
};

class LaunchTable {
 public:
  struct Entry {
    braze_kernel_fn function;
    uint32_t first_buffer;
    uint32_t first_param;
    bool parallel;
  };

  struct DebugView {
    const unsigned char* data;
    std::vector<int64_t> dims;
    int64_t bytes;
  };

  // Checks that every buffer lies within its memory. `arena` has the profile's bytes.
  LaunchTable(const Engine& engine, Shapes shapes, unsigned char* arena);

  const Shapes& shapes() const { return shapes_; }
  int64_t binding_bytes(size_t binding) const { return binding_bytes_[binding]; }
  bool has_parallel_step() const { return has_parallel_step_; }
  size_t num_steps() const { return launches_.size(); }
  bool is_parallel(size_t step) const { return launches_[step].parallel; }

  // Checks the caller's memory (one entry a binding) and lets the steps point to it.
  void bind(const braze_memory* memory);

  void launch(size_t step, int64_t worker, int64_t num_workers) {
    const Entry& l = launches_[step];
    l.function(&pointers_[l.first_buffer], &params_[l.first_param], worker, num_workers,
               &statuses_[step]);
  }

  // Built when first asked for, since runs with one worker do without.
  const std::vector<Phase>& phases();

  // Throws the execution error of the first step that reported bad data, after resetting.
  void check_statuses();
  // After a run that was given up halfway, so that the next one starts clean.
  void reset_statuses() noexcept { std::fill(statuses_.begin(), statuses_.end(), 0); }

  DebugView debug_view(size_t index) const;

 private:
  struct Patch {  // a pointer into memory of the caller
    uint32_t pointer;
    int32_t binding;
    int64_t displacement;
  };

  struct Span {  // of the caller's memory
    uintptr_t begin;
    uintptr_t end;
    size_t binding;
  };

  void place_buffers(unsigned char* arena);
  void place_buffer(size_t index, const unsigned char* base, uint64_t base_bytes, int64_t offset);
  void add_step(const Launch& step, braze_kernel_fn function);
  void check_value(size_t input, const void* data) const;
  void check_overlap(const braze_memory* memory);
  int64_t displacement(const BufferRef& ref, const std::string& where) const;
  bool conflicts(size_t earlier, size_t later) const;

  const Engine& engine_;
  Shapes shapes_;
  std::vector<int64_t> binding_bytes_;
  std::vector<unsigned char*> buffers_;  // null for memory of the caller
  std::vector<int64_t> buffer_bytes_;
  std::vector<Entry> launches_;
  std::vector<void*> pointers_;
  std::vector<int64_t> params_;
  std::vector<Patch> patches_;
  std::vector<const void*> bound_;  // addresses the pointers have now
  std::vector<Span> spans_;          // kept for its memory
  std::vector<int32_t> statuses_;
  std::vector<Phase> phases_;
  bool has_parallel_step_ = false;
};

}  // namespace braze
