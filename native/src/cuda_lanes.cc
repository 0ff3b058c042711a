#include "cuda_lanes.h"

#include <algorithm>

namespace braze {
namespace {

constexpr unsigned kNonBlocking = 1;  // CU_STREAM_NON_BLOCKING
constexpr unsigned kNoTiming = 2;     // CU_EVENT_DISABLE_TIMING

using Set = std::vector<char>;

// The steps that a step has to wait for, without those that others of them have waited for, the
// latest first; `before` becomes all that runs before it.
std::vector<size_t> direct_dependencies(LaunchTable& table, size_t first, size_t step,
                                        const std::vector<Set>& before_each, Set& before) {
  std::vector<size_t> found;
  for (size_t earlier = step; earlier-- > 0;) {
    if (before[earlier] || !table.must_follow(first + earlier, first + step)) continue;
    found.push_back(earlier);
    before[earlier] = 1;
    const Set& theirs = before_each[earlier];
    for (size_t i = 0; i < theirs.size(); ++i) before[i] = static_cast<char>(before[i] | theirs[i]);
  }
  return found;
}

// A lane that ends with something the step waits for anyway, else a new one, else any.
size_t choose_lane(const std::vector<size_t>& last, const std::vector<size_t>& waits,
                   const Set& before, size_t most_lanes) {
  for (const size_t step : waits) {
    const auto lane = std::find(last.begin(), last.end(), step);
    if (lane != last.end()) return static_cast<size_t>(lane - last.begin());
  }
  for (size_t lane = 0; lane < last.size(); ++lane) {
    if (before[last[lane]]) return lane;
  }
  if (last.size() < most_lanes) return last.size();
  return static_cast<size_t>(std::min_element(last.begin(), last.end()) - last.begin());
}

}  // namespace

Lanes plan_lanes(LaunchTable& table, const Segment& segment, size_t most_lanes) {
  const size_t count = segment.end - segment.begin;
  Lanes out;
  out.steps.resize(count);
  std::vector<Set> before_each;
  std::vector<size_t> last;  // of each lane
  for (size_t step = 0; step < count; ++step) {
    Set before(step + 1);
    const std::vector<size_t> waits =
        direct_dependencies(table, segment.begin, step, before_each, before);
    Lanes::Place& place = out.steps[step];
    place.lane = choose_lane(last, waits, before, most_lanes);
    place.forks = place.lane == last.size() && step > 0 && waits.empty();
    out.forks |= place.forks;
    if (place.lane == last.size()) last.push_back(step);
    // what the lane ran before now counts as waited for
    const size_t previous = last[place.lane];
    if (previous != step) {
      before[previous] = 1;
      const Set& theirs = before_each[previous];
      for (size_t i = 0; i < theirs.size(); ++i) before[i] = static_cast<char>(before[i] | theirs[i]);
    }
    last[place.lane] = step;
    for (const size_t other : waits) {
      if (out.steps[other].lane == place.lane) continue;
      place.waits.push_back(other);
      out.steps[other].marked = true;
    }
    before_each.push_back(std::move(before));
  }
  out.count = std::max<size_t>(last.size(), 1);
  for (size_t lane = 1; lane < last.size(); ++lane) {
    if (before_each[last[0]].size() > last[lane] && before_each[last[0]][last[lane]]) continue;
    out.joins.push_back(last[lane]);
    out.steps[last[lane]].marked = true;
  }
  return out;
}

CudaLanes::CudaLanes(int32_t extra_streams, int priority)
    : most_(static_cast<size_t>(extra_streams) + 1), priority_(priority) {}

CuHandle CudaLanes::mark() {
  if (marks_used_ == marks_.size()) {
    CudaEvent made;
    cuda_check(CudaDriver::get().event_create(made.out(), kNoTiming), "making an event");
    marks_.push_back(std::move(made));
  }
  return marks_[marks_used_++].get();
}

void CudaLanes::record(LaunchTable& table, const Segment& segment, CudaSteps& steps,
                       CuHandle stream) {
  const CudaDriver& driver = CudaDriver::get();
  const Lanes lanes = plan_lanes(table, segment, most_);
  while (streams_.size() + 1 < lanes.count) {
    CudaStream made;
    cuda_check(driver.stream_create(made.out(), kNonBlocking, priority_), "making a stream");
    streams_.push_back(std::move(made));
  }
  marks_used_ = 0;
  steps.begin();
  std::vector<CuHandle> marks(lanes.steps.size());
  const auto put_mark = [&](CuHandle on) {
    const CuHandle made = mark();
    cuda_check(driver.event_record(made, on), "recording a branch");
    return made;
  };
  const auto wait_for = [&](CuHandle on, CuHandle event) {
    cuda_check(driver.stream_wait_event(on, event, 0), "recording a branch");
  };
  const CuHandle begin = lanes.forks ? put_mark(stream) : nullptr;
  std::vector<char> after_launch(lanes.count);  // what ran before the graph does not count
  for (size_t step = 0; step < lanes.steps.size(); ++step) {
    const Lanes::Place& place = lanes.steps[step];
    const CuHandle on = place.lane ? streams_[place.lane - 1].get() : stream;
    if (place.forks) wait_for(on, begin);
    for (const size_t other : place.waits) wait_for(on, marks[other]);
    const bool early = after_launch[place.lane] && place.waits.empty();
    after_launch[place.lane] = steps.issue(table, segment.begin + step, on, early);
    if (place.marked) marks[step] = put_mark(on);
  }
  for (const size_t other : lanes.joins) wait_for(stream, marks[other]);
}

}  // namespace braze
