#include "cuda_ring.h"

namespace braze {
namespace {

constexpr unsigned kNonBlocking = 1;  // CU_STREAM_NON_BLOCKING
constexpr unsigned kNoTiming = 2;     // CU_EVENT_DISABLE_TIMING

}  // namespace

CudaRing::CudaRing(Device& device, const Plan& plan, const CudaWeights& weights)
    : plan_(plan), weights_(weights) {
  if (!weights.is_streamed()) return;
  cuda_check(CudaDriver::get().stream_create(copies_.out(), kNonBlocking, 0), "making a stream");
  memory_ = Arena(device, weights.ring_bytes());
}

void CudaRing::begin() {
  pieces_.clear();
  current_ = 0;
  head_ = 0;
  marks_used_ = 0;
  begun_ = false;
}

CuHandle CudaRing::mark(CuHandle stream) {
  const CudaDriver& driver = CudaDriver::get();
  if (marks_used_ == marks_.size()) {
    CudaEvent made;
    cuda_check(driver.event_create(made.out(), kNoTiming), "making an event");
    marks_.push_back(std::move(made));
  }
  const CuHandle out = marks_[marks_used_++].get();
  cuda_check(driver.event_record(out, stream), "streaming weights");
  return out;
}

// The oldest pieces up to `end` from the head go; copies wait for the steps that read them. Those of
// the step being made stay: the ring has room for twice what a step reads.
void CudaRing::drop_until(int64_t end) {
  while (pieces_.size() > current_ && pieces_.front().begin >= head_ && pieces_.front().begin < end) {
    const CuHandle read = pieces_.front().read;
    cuda_check(CudaDriver::get().stream_wait_event(copies_.get(), read, 0), "streaming weights");
    pieces_.pop_front();
  }
}

void CudaRing::make_room(int64_t bytes) {
  const int64_t size = weights_.ring_bytes();
  if (head_ + bytes > size) {
    drop_until(size);
    head_ = 0;
  }
  drop_until(head_ + bytes);
}

unsigned char* CudaRing::stream_in(int64_t offset, CuHandle stream) {
  const CudaDriver& driver = CudaDriver::get();
  if (!begun_) {  // the copies follow what ran before, and are of the same capture
    const CuHandle now = mark(stream);
    cuda_check(driver.stream_wait_event(copies_.get(), now, 0), "streaming weights");
    begun_ = true;
  }
  const int64_t bytes = weights_.bytes(offset);
  constexpr int64_t unit = CudaWeights::kAlignment;
  const int64_t room = (bytes + unit - 1) / unit * unit;
  make_room(room);
  pieces_.push_back({head_, head_ + room});
  ++current_;
  unsigned char* const place = memory_.data() + head_;
  head_ += room;
  cuda_check(driver.to_device(reinterpret_cast<CuAddress>(place), weights_.pinned(offset),
                              static_cast<size_t>(bytes), copies_.get()),
             "streaming weights");
  return place;
}

bool CudaRing::before(size_t step, void** pointers, const Shapes& shapes, CuHandle stream) {
  if (!weights_.is_streamed()) return false;
  current_ = 0;
  const std::vector<BufferRef> refs = buffers_of(*plan_.every_step[step]);
  for (size_t i = 0; i < refs.size(); ++i) {
    const Buffer& b = plan_.buffers[static_cast<size_t>(refs[i].buffer)];
    if (b.kind != format::BufferKind::kWeight) continue;
    unsigned char* place = weights_.resident(b.offset);
    if (!place) place = stream_in(b.offset, stream);
    const int32_t displacement = refs[i].displacement;
    pointers[i] = place + (displacement < 0 ? 0 : shapes.at(displacement));
  }
  if (!current_) return false;
  const CuHandle ready = mark(copies_.get());
  cuda_check(CudaDriver::get().stream_wait_event(stream, ready, 0), "streaming weights");
  return true;
}

void CudaRing::after(CuHandle stream) {
  if (!current_) return;
  const CuHandle read = mark(stream);
  for (size_t i = pieces_.size() - current_; i < pieces_.size(); ++i) pieces_[i].read = read;
  current_ = 0;
}

}  // namespace braze
