// The checks of steps and bodies; src/braze/engine/validate_steps.py makes the same.
#include <algorithm>
#include <set>

#include "plan.h"
#include "record_reader.h"

namespace braze {
namespace {

using format::BufferKind;

template <class Source>
bool has_source(const Plan& plan, int32_t symbol) {
  return std::holds_alternative<Source>(plan.symbols[static_cast<size_t>(symbol)].source);
}

void check_writable(const Plan& plan, const std::string& where, int32_t buffer) {
  const BufferKind kind = plan.buffers[static_cast<size_t>(buffer)].kind;
  const bool writable = kind == BufferKind::kArena || kind == BufferKind::kOutput;
  require(writable, where, cat("it writes to buffer ", buffer, ", which is only read"));
}

// One call for each kind of step.
struct StepCheck {
  const Plan& plan;
  const std::string& where;

  void operator()(const Launch& step) const {
    const Kernel& kernel = plan.kernels[static_cast<size_t>(step.kernel)];
    const Module& module = plan.modules[static_cast<size_t>(kernel.module)];
    const bool has_grid = !step.grid.empty() || !step.maps.empty() || kernel.block ||
                          kernel.shared_bytes || kernel.counters || kernel.waits;
    const bool on_cpu = module.kind == format::CodeKind::kElf;
    require(!on_cpu || !has_grid, where, "a kernel of the CPU has a grid");
    for (const TensorMap& m : step.maps) {
      const size_t rank = m.shape.size();
      const bool whole = rank > 0 && m.box.size() == rank && m.strides.size() == rank - 1;
      require(whole, where, "a tensor map has sizes for another number of axes");
      const bool known = m.buffer < static_cast<int64_t>(step.buffers.size());
      require(known, where, cat("it has no buffer ", m.buffer, " to map"));
    }
  }

  void operator()(const LibraryCall&) const {}

  void operator()(const Copy& step) const { check_writable(plan, where, step.target.buffer); }

  void operator()(const Sizes& step) const {
    for (const KnownSize& known : step.known) {
      const bool right = known.size < 0 ? has_source<ElementSource>(plan, known.symbol)
                                        : has_source<AssignedSource>(plan, known.symbol);
      require(right, where, "a symbol has another source");
    }
  }

  void operator()(const If&) const {}

  void operator()(const Call&) const {}

  void operator()(const Loop& step) const {
    require(step.trip || step.condition, where, "the loop has no end");
    const Body& body = plan.bodies[static_cast<size_t>(step.body)];
    require(!body.steps.empty(), where, "the body of the loop has no steps");
    if (step.counter >= 0) check_writable(plan, where, step.counter);
    for (const CarriedSize& size : step.sizes) {
      const bool assigned = has_source<AssignedSource>(plan, size.symbol);
      require(assigned, where, "a symbol has another source");
    }
    std::set<int32_t> targets;
    for (const Carried& c : step.carried) targets.insert(c.target);
    require(targets.size() == step.carried.size(), where, "a buffer is carried twice");
    for (const Carried& c : step.carried) {
      check_writable(plan, where, c.target);
      const auto apart = [&](const BufferRef& read) {
        return read.buffer == c.target || targets.count(read.buffer) == 0;
      };
      require(apart(c.next) && (!c.first || apart(*c.first)), where,
              "a carried value is read from where another is kept");
    }
  }
};

// Checks a list of steps, which may run the bodies that have `depths`; returns its own depth.
int64_t check_list(const Plan& plan, const std::string& name, const std::vector<Step>& steps,
                   const std::vector<int64_t>& depths) {
  int64_t depth = 1;
  for (size_t i = 0; i < steps.size(); ++i) {
    const std::string where = cat(name, " step ", i, " '", step_name(steps[i]), "'");
    for (const int32_t body : bodies_of(steps[i])) {
      const auto index = static_cast<size_t>(body);
      require(index < depths.size(), where, cat("body ", body, " does not come before"));
      depth = std::max(depth, 1 + depths[index]);
    }
    require(depth <= int64_t{format::kMaxBodyDepth}, where, "bodies are nested too deeply");
    std::visit(StepCheck{plan, where}, steps[i]);
  }
  return depth;
}

}  // namespace

void check_steps(const Plan& plan) {
  std::vector<int64_t> depths;
  for (size_t i = 0; i < plan.bodies.size(); ++i) {
    depths.push_back(check_list(plan, cat("body ", i), plan.bodies[i].steps, depths));
  }
  check_list(plan, "plan", plan.steps, depths);
}

}  // namespace braze
