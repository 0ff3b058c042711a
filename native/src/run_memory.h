// Where the buffers of a plan lie during a run: the arena, the weights, memory of the caller, and
// memory of their own for buffers whose size only the run knows.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "arena_layout.h"
#include "braze.h"
#include "engine.h"
#include "shapes.h"

namespace braze {

class RunMemory {
 public:
  struct View {
    unsigned char* data;
    int64_t bytes;
  };

  // Checks that every buffer of known size lies within its memory. `arena` has the layout's bytes;
  // shapes must outlive this. device: null where the host reaches all.
  RunMemory(const Engine& engine, const Shapes& shapes, ArenaLayout layout, unsigned char* arena,
            DeviceMemory* device);

  // Checks the caller's memory, one entry a binding, and asks for memory of outputs without any.
  // Returns whether an address differs from that of the last run.
  bool bind(const braze_memory* memory, const braze_run_options& options);
  // After bind: steps find the tensors at these addresses, one a binding.
  void point(const std::vector<unsigned char*>& addresses) { found_ = addresses; }
  // Gives outputs that no step has written their memory; throws for shapes still unknown.
  void finish();

  // From a place in a buffer to its end. A buffer of a size that the run made known gets its memory.
  // Null for memory of the caller that is not bound.
  View view(const BufferRef& ref);
  // How far into its buffer a reference points.
  int64_t displacement(const BufferRef& ref) const;

  int64_t arena_bytes() const { return layout_.bytes; }
  unsigned char* address(size_t binding) const { return bound_[binding]; }
  int64_t binding_bytes(size_t binding) const { return binding_bytes_[binding]; }  // -1: unknown yet
  int64_t buffer_bytes(size_t buffer) const;

 private:
  struct Span {  // of the caller's memory
    uintptr_t begin;
    uintptr_t end;
    size_t binding;
  };

  unsigned char* place(size_t buffer, int64_t bytes);
  unsigned char* within(size_t buffer, int64_t bytes, const unsigned char* base,
                        uint64_t base_bytes, int64_t offset) const;
  unsigned char* own_memory(size_t buffer, int64_t bytes);
  unsigned char* output(size_t binding);
  int64_t tensor_size(size_t binding) const;
  std::vector<int64_t> dims_of(size_t binding) const;
  void accept(size_t binding, const braze_memory& memory, int64_t bytes) const;
  braze_memory allocated(size_t binding, int64_t bytes) const;
  void check_value(size_t input, const void* data) const;
  void check_overlap();
  [[noreturn]] void overlap(size_t a, size_t b) const;

  const Engine& engine_;
  const Shapes& shapes_;
  const ArenaLayout layout_;
  unsigned char* const arena_;
  DeviceMemory* const device_;
  const unsigned char* const weights_;
  std::vector<int64_t> binding_bytes_;
  std::vector<unsigned char*> bound_;
  std::vector<unsigned char*> found_;  // where steps find what is bound
  bool unchecked_ = true;            // whether the addresses in bound_ were not all accepted
  std::vector<braze_memory> given_;  // by the caller of this run, for outputs sized in the run
  std::vector<std::vector<int64_t>> dims_;  // of those, when they got their memory
  braze_run_options options_ = {};
  std::vector<Arena> own_;   // per buffer; empty where the plan has no late sizes
  std::vector<Span> spans_;  // kept for its memory
};

}  // namespace braze
