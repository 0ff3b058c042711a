// A ring of device memory through which a context streams the weights that do not fit.
#pragma once

#include <deque>
#include <vector>

#include "cuda_objects.h"
#include "cuda_weights.h"
#include "shapes.h"

namespace braze {

// Weights are copied on a stream of their own, as far ahead as the ring has room: a copy waits for the
// steps that read what it overwrites, and a step for the copies of its weights. In capture or not.
class CudaRing {
 public:
  CudaRing(Device& device, const Plan& plan, const CudaWeights& weights);

  // Before the steps of a run.
  void begin();
  // Lets the step's pointers, one a buffer, point to its weights. Returns whether `stream` waits for
  // copies now.
  bool before(size_t step, void** pointers, const Shapes& shapes, CuHandle stream);
  // When the step is on `stream`.
  void after(CuHandle stream);

 private:
  struct Piece {
    int64_t begin;
    int64_t end;
    CuHandle read = nullptr;  // an event after the step that reads it
  };

  CuHandle mark(CuHandle stream);
  unsigned char* stream_in(int64_t offset, CuHandle stream);
  void make_room(int64_t bytes);
  void drop_until(int64_t end);

  const Plan& plan_;
  const CudaWeights& weights_;
  CudaStream copies_;
  std::vector<CudaEvent> marks_;
  size_t marks_used_ = 0;
  bool begun_ = false;  // the stream of copies follows this run
  Arena memory_;
  std::deque<Piece> pieces_;  // the oldest first
  size_t current_ = 0;        // the last of them are of the step being made
  int64_t head_ = 0;
};

}  // namespace braze
