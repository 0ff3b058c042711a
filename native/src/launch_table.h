// Everything a run needs for one set of input shapes: pointers, parameters, order.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "braze.h"
#include "engine.h"
#include "run_memory.h"
#include "shapes.h"

namespace braze {

// Consecutive steps that need no barrier between them. Steps that are not parallel run on worker 0.
struct Phase {
  size_t begin;
  size_t end;
  bool parallel;  // any of them is
};

// Throws the execution error of a step that reported bad data.
[[noreturn]] void fail_step(const Engine& engine, size_t step, int32_t status);

// Steps and segments are numbered as in the plan. Segments that use sizes of the run are set up when
// the run comes to them, others once.
class LaunchTable {
 public:
  struct DebugView {
    const unsigned char* data;
    std::vector<int64_t> dims;
    int64_t bytes;
  };

  // Checks that every buffer of known size lies within its memory. `arena` has the layout's bytes.
  // device: null where the host reaches all memory.
  LaunchTable(const Engine& engine, Shapes shapes, ArenaLayout layout, unsigned char* arena,
              DeviceMemory* device = nullptr);
  LaunchTable(const LaunchTable&) = delete;
  LaunchTable& operator=(const LaunchTable&) = delete;

  const Shapes& shapes() const { return shapes_; }
  int64_t arena_bytes() const { return memory_.arena_bytes(); }
  int64_t binding_bytes(size_t binding) const { return memory_.binding_bytes(binding); }
  // The memory of the caller that was bound last.
  unsigned char* bound(size_t binding) const { return memory_.address(binding); }
  bool has_parallel_step() const { return has_parallel_step_; }
  size_t num_steps() const { return entries_.size(); }
  bool is_parallel(size_t step) const { return entries_[step].parallel; }

  // Begins a run: checks the caller's memory (one entry a binding) and lets the steps point to it.
  void bind(const braze_memory* memory, const braze_run_options& options);
  // After bind: lets the steps point to tensors that lie elsewhere for them, one address a binding.
  void point(const std::vector<unsigned char*>& addresses);

  void** pointers(size_t step) { return &pointers_[entries_[step].first_buffer]; }
  int64_t* params(size_t step) { return &params_[entries_[step].first_param]; }
  // The bytes of each of its buffers.
  std::vector<int64_t> buffer_bytes(size_t step);

  // Before the steps of a segment run.
  void enter(size_t segment) {
    if (engine_.plan().segments[segment].late && set_up_for_[segment] != epoch_) set_up(segment);
  }
  void launch(size_t step, int64_t worker, int64_t num_workers) {
    const Entry& e = entries_[step];
    e.function(&pointers_[e.first_buffer], &params_[e.first_param], worker, num_workers,
               &statuses_[step]);
  }
  // Of an entered segment. Built when first asked for, since runs with one worker do without.
  const std::vector<Phase>& phases(size_t segment);
  // Throws the execution error of the first step in [begin, end) that reported bad data.
  void check_statuses(size_t begin, size_t end);
  // Whether two steps of a list must not overlap in time: one waits for the other, or different
  // buffers of theirs share bytes of the arena (memory reused after its last reader).
  bool must_follow(size_t earlier, size_t later);
  // Ends a run.
  void finish() { memory_.finish(); }
  // After a run, also one that was given up halfway, so that the next one starts clean.
  void reset_statuses() noexcept { std::fill(statuses_.begin(), statuses_.end(), 0); }

  // ---- what steering steps read and write ---------------------------------------------------

  int64_t integer(const BufferRef& ref);
  bool flag(const BufferRef& ref);
  void set_counter(int32_t buffer, int64_t value);
  void give(const Sizes& step);
  // Carries the values and sizes of a loop into its first or next iteration; forgets what the body
  // gave.
  void carry(const Loop& loop, bool first, const std::vector<int32_t>& forgotten);

  DebugView debug_view(size_t index);

 private:
  struct Entry {
    braze_kernel_fn function;
    uint32_t first_buffer;
    uint32_t first_param;
    bool parallel;
  };
  struct Patch {  // a pointer into memory of the caller
    uint32_t pointer;
    int32_t binding;
    int64_t displacement;
  };

  void add_step(size_t step);
  void fill(size_t step, bool patch);
  void set_up(size_t segment);
  void read(void* to, const void* from, int64_t bytes) {
    if (!device_) {
      std::memcpy(to, from, static_cast<size_t>(bytes));
    } else {
      const DeviceMemory::Read all{to, from, bytes};
      device_->read(&all, 1);
    }
  }

  const Engine& engine_;
  DeviceMemory* const device_;
  Shapes shapes_;
  RunMemory memory_;
  std::vector<Entry> entries_;
  std::vector<void*> pointers_;
  std::vector<int64_t> params_;
  std::vector<Patch> patches_;
  std::vector<int32_t> statuses_;
  std::vector<std::vector<Phase>> phases_;  // per segment
  uint64_t epoch_ = 1;                      // raised whenever sizes of the run change
  std::vector<uint64_t> set_up_for_;        // the epoch of each late segment
  std::vector<int64_t> sizes_scratch_;
  bool has_parallel_step_ = false;
};

}  // namespace braze
