// Mutable state of one execution of an engine: shapes, bound memory, arena.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "device.h"
#include "engine.h"
#include "fork_safe_mutex.h"
#include "launch_table.h"

namespace braze {

// Every public function locks the context, so threads that share one take turns.
class Context {
 public:
  Context(std::shared_ptr<const Engine> engine, int32_t profile,
          const ContextOptions& options = {});

  const Engine& engine() const { return *engine_; }

  void set_shapes(const int64_t* dims, int64_t count);
  void set_input_shape(int32_t input, const int64_t* dims, int32_t rank);
  void binding_shape(int32_t binding, int64_t* dims, int64_t* bytes);
  void profile(int32_t* profile, int64_t* arena_bytes);
  void bind(int32_t binding, const braze_memory& memory);

  // A run with everything it needs, independent of the shapes and memory set above.
  struct Request {
    std::vector<int64_t> dims;
    std::vector<braze_memory> memory;
  };
  Request request();  // what is set now
  void run(const Request& request, const braze_run_options& options);
  void run(const int64_t* dims, int64_t count, const braze_memory* memory, int64_t memory_count,
           const braze_run_options& options);
  // As work of a stream of the device, with what is set now.
  void enqueue(void* stream, const braze_run_options& options);
  void synchronize();

 private:
  using Lock = std::lock_guard<ForkSafeMutex>;

  void check_binding(int32_t binding) const;
  void check_count(int64_t count) const;
  SymbolValues contents(const braze_memory* memory) const;
  LaunchTable& prepare(const int64_t* dims, const SymbolValues& contents = {});
  LaunchTable* find_table(const int64_t* dims, const SymbolValues& contents);
  void forget_oldest_table();
  LaunchTable& prepare_current();
  void execute_locked(const int64_t* dims, const braze_memory* memory,
                      const braze_run_options& options);

  const std::shared_ptr<const Engine> engine_;
  const int32_t profile_;
  ForkSafeMutex mutex_{"context"};
  std::vector<int64_t> dims_;  // of all inputs; -1 where not set yet
  std::vector<braze_memory> memory_;
  Arena arena_;  // grows to the largest profile used
  std::vector<std::unique_ptr<LaunchTable>> tables_;  // of the last shapes, the latest last
  std::unique_ptr<Runner> runner_;                    // where the device has one
};

}  // namespace braze
