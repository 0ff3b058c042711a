// Walks the lists of steps of a plan: what decides what runs next, the same on every device.
#pragma once

#include <chrono>
#include <limits>
#include <variant>

#include "launch_table.h"
#include "plan.h"

namespace braze {

// Steps: has run(index, segment), for straight segments and host calls, and steered(step, start),
// which is called after each other step.
template <class Steps>
class FlowWalk {
 public:
  using Clock = std::chrono::steady_clock;

  FlowWalk(const Plan& plan, LaunchTable& table, Steps& steps)
      : plan_(plan), table_(table), steps_(steps) {}

  void run() {
    flow(plan_.main);
    table_.finish();
  }

 private:
  void flow(const Flow& flow) {
    for (const size_t index : flow.segments) {
      const Segment& segment = plan_.segments[index];
      if (segment.straight || segment.host_call) {
        table_.enter(index);
        steps_.run(index, segment);
      } else {
        const Clock::time_point start = Clock::now();
        std::visit([this](const auto& step) { steer(step); }, *plan_.every_step[segment.begin]);
        steps_.steered(segment.begin, start);
      }
    }
  }

  void steer(const Sizes& step) { table_.give(step); }

  void steer(const Call& step) { flow(body(step.body)); }

  void steer(const If& step) {
    const int32_t taken = table_.flag(step.condition) ? step.then : step.otherwise;
    if (taken >= 0) flow(body(taken));
  }

  void steer(const Loop& step) {
    const Flow& flow_of_body = body(step.body);
    table_.carry(step, true, {});
    const int64_t trips =
        step.trip ? table_.integer(*step.trip) : std::numeric_limits<int64_t>::max();
    for (int64_t i = 0; i < trips; ++i) {
      if (step.condition && !table_.flag(*step.condition)) break;
      if (step.counter >= 0) table_.set_counter(step.counter, i);
      flow(flow_of_body);
      table_.carry(step, false, flow_of_body.gives);
    }
  }

  // Straight steps stand in segments of their own.
  void steer(const Launch&) {}
  void steer(const LibraryCall&) {}
  void steer(const Copy&) {}

  const Flow& body(int32_t index) const { return plan_.body_flows[static_cast<size_t>(index)]; }

  const Plan& plan_;
  LaunchTable& table_;
  Steps& steps_;
};

}  // namespace braze
