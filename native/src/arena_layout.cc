#include "arena_layout.h"

#include <algorithm>
#include <limits>
#include <tuple>
#include <utility>

#include "error.h"

namespace braze {
namespace {

struct Life {
  size_t first = std::numeric_limits<size_t>::max();
  size_t last = 0;

  void at(size_t time) {
    first = std::min(first, time);
    last = std::max(last, time);
  }
};

// Finds which buffers the steps of the plan's list use. What a body uses is in use at the step that
// runs the body.
class Lives {
 public:
  explicit Lives(const Plan& plan) : plan_(plan), of_(plan.buffers.size()) {
    for (const Step& step : plan.steps) {
      note(step);
      ++time_;
    }
  }
  const Life& of(size_t buffer) const { return of_[buffer]; }

 private:
  void note(const Step& step) {
    std::visit([this](const auto& s) { uses(s); }, step);
    for (const int32_t body : bodies_of(step)) {
      for (const Step& inner : plan_.bodies[static_cast<size_t>(body)].steps) note(inner);
    }
  }

  void use(int32_t buffer) {
    if (buffer >= 0) of_[static_cast<size_t>(buffer)].at(time_);
  }
  void use(const BufferRef& ref) { use(ref.buffer); }
  template <class Ref>
  void use(const std::optional<Ref>& ref) {
    if (ref) use(*ref);
  }

  void uses(const Launch& step) {
    for (const BufferRef& ref : step.buffers) use(ref);
  }
  void uses(const LibraryCall& step) {
    for (const BufferRef& ref : step.buffers) use(ref);
  }
  void uses(const Copy& step) {
    use(step.source);
    use(step.target);
  }
  void uses(const Sizes& step) {
    for (const KnownSize& known : step.known) {
      const Symbol& symbol = plan_.symbols[static_cast<size_t>(known.symbol)];
      if (const auto* const element = std::get_if<ElementSource>(&symbol.source)) use(element->buffer);
    }
  }
  void uses(const If& step) { use(step.condition); }
  void uses(const Loop& step) {
    use(step.trip);
    use(step.condition);
    use(step.counter);
    for (const Carried& carried : step.carried) {
      use(carried.target);
      use(carried.first);
      use(carried.next);
    }
  }
  void uses(const Call&) {}

  const Plan& plan_;
  std::vector<Life> of_;
  size_t time_ = 0;
};

int64_t aligned(int64_t bytes, int64_t alignment) {
  int64_t up = 0;
  if (__builtin_add_overflow(bytes, alignment - 1, &up)) {
    fail(BRAZE_ERROR_SHAPE, "the tensors are too large for these input shapes; use smaller ones");
  }
  return std::max(alignment, up / alignment * alignment);
}

struct Placed {
  Life life;
  int64_t begin;
  int64_t end;
};

bool together(const Life& a, const Life& b) { return a.first <= b.last && b.first <= a.last; }

int64_t lowest_gap(const std::vector<Placed>& placed, const Life& life, int64_t base, int64_t size) {
  std::vector<std::pair<int64_t, int64_t>> beside;
  for (const Placed& p : placed) {
    if (together(p.life, life)) beside.emplace_back(p.begin, p.end);
  }
  std::sort(beside.begin(), beside.end());
  int64_t at = base;
  for (const auto& [begin, end] : beside) {
    if (begin - at >= size) break;
    at = std::max(at, end);
  }
  return at;
}

}  // namespace

ArenaLayout lay_out(const Plan& plan, const Shapes& shapes) {
  const Profile& profile = plan.profiles[shapes.profile()];
  ArenaLayout layout{profile.offsets, profile.arena_bytes};
  std::vector<std::pair<int64_t, size_t>> open;  // bytes, buffer
  for (size_t i = 0; i < plan.buffers.size(); ++i) {
    const Buffer& b = plan.buffers[i];
    if (b.kind != format::BufferKind::kArena || layout.offsets[i] >= 0 || plan.is_late(b.bytes)) {
      continue;
    }
    const int64_t bytes = shapes.at(b.bytes);
    if (bytes < 0) fail(BRAZE_ERROR_SHAPE, "buffer ", i, " would have ", bytes, " bytes");
    open.emplace_back(aligned(bytes, plan.target.alignment), i);
  }
  if (open.empty()) return layout;
  const Lives lives(plan);
  std::sort(open.begin(), open.end(), [&](const auto& a, const auto& b) {
    return std::make_tuple(-a.first, lives.of(a.second).first, a.second) <
           std::make_tuple(-b.first, lives.of(b.second).first, b.second);
  });
  const int64_t base = aligned(profile.arena_bytes, plan.target.alignment);
  std::vector<Placed> placed;
  for (const auto& [size, buffer] : open) {
    const Life& life = lives.of(buffer);
    const int64_t at = lowest_gap(placed, life, base, size);
    int64_t end = 0;
    if (__builtin_add_overflow(at, size, &end)) {
      fail(BRAZE_ERROR_SHAPE, "the tensors are too large for these input shapes; use smaller ones");
    }
    placed.push_back({life, at, end});
    layout.offsets[buffer] = at;
    layout.bytes = std::max(layout.bytes, end);
  }
  return layout;
}

}  // namespace braze
