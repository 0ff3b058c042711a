#include "weight_check.h"

#include <algorithm>

#include "checksum.h"
#include "engine_format.h"
#include "error.h"
#include "signals.h"
#include "thread_pool.h"

namespace braze {
namespace {

// Below this a thread costs more than the check.
constexpr size_t kSmallBytes = size_t{4} << 20;

}  // namespace

WeightCheck::WeightCheck(const Section& weights, std::string engine_name)
    : weights_(weights),
      engine_name_(std::move(engine_name)),
      fork_generation_(fork_generation()),
      hashes_((weights.size + format::kChecksumChunkBytes - 1) / format::kChecksumChunkBytes) {
  if (weights.size <= kSmallBytes) {
    hash_chunks();
    wait();
  } else {
    const SignalsBlocked blocked;
    thread_ = new std::thread([this] { hash_chunks(); });
  }
}

WeightCheck::~WeightCheck() {
  stop_.store(true);
  if (!thread_ || fork_generation_ != fork_generation()) return;
  thread_->join();
  delete thread_;
}

// Any number of threads may be in here; each takes the next chunk until none is left.
void WeightCheck::hash_chunks() {
  const size_t count = hashes_.size();
  if (count == 0) finish();
  for (;;) {
    const size_t chunk = next_chunk_.fetch_add(1, std::memory_order_relaxed);
    if (chunk >= count || stop_.load(std::memory_order_relaxed)) return;
    const size_t at = chunk * format::kChecksumChunkBytes;
    const size_t size = std::min(weights_.size - at, size_t{format::kChecksumChunkBytes});
    hashes_[chunk] = chunk_hash(weights_.data + at, size);
    if (chunks_done_.fetch_add(1, std::memory_order_acq_rel) + 1 == count) finish();
  }
}

void WeightCheck::finish() {
  const bool whole = combine_chunk_hashes(hashes_, weights_.size) == weights_.checksum;
  const std::lock_guard<std::mutex> lock(mutex_);
  state_.store(whole ? kWhole : kDamaged, std::memory_order_release);
  changed_.notify_all();
}

void WeightCheck::wait_slowly() {
  if (state_.load(std::memory_order_acquire) == kRunning) {
    if (fork_generation_ != fork_generation()) {
      // The thread stayed behind in the parent, perhaps in the middle of a chunk: do it all here.
      const bool whole = checksum(weights_.data, weights_.size) == weights_.checksum;
      state_.store(whole ? kWhole : kDamaged, std::memory_order_release);
    } else {
      hash_chunks();
      std::unique_lock<std::mutex> lock(mutex_);
      changed_.wait(lock, [this] { return state_.load() != kRunning; });
    }
  }
  if (state_.load(std::memory_order_acquire) == kDamaged) {
    fail(BRAZE_ERROR_FORMAT, engine_name_, ": the weights section is damaged (its checksum ",
         "differs); copy the file again or rebuild the engine");
  }
}

}  // namespace braze
