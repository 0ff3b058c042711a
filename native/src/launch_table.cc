#include "launch_table.h"

#include <algorithm>
#include <cstring>

#include "error.h"

namespace braze {
namespace {

using format::BufferKind;

// Enough to merge the branches of any block, and it bounds the pairwise comparison.
constexpr size_t kMaxPhaseSteps = 32;

std::string describe(const Engine& engine, size_t step) {
  const std::string& origins = engine.origins(step);
  return cat("step ", step, " '", step_name(*engine.plan().every_step[step]), "'",
             origins.empty() ? "" : cat(" (from ", origins, ")"));
}

// The buffers, params and dependencies of a straight step.
struct Straight {
  std::vector<BufferRef> copied;  // of a Copy, which has no list
  const std::vector<BufferRef>* buffers = nullptr;
  std::vector<int32_t> copied_params;
  const std::vector<int32_t>* params = nullptr;
  const std::vector<int32_t>* after = nullptr;
  bool parallel = false;

  explicit Straight(const Step& step) {
    if (const auto* const launch = std::get_if<Launch>(&step)) {
      take(*launch);
      parallel = launch->parallel;
    } else if (const auto* const call = std::get_if<LibraryCall>(&step)) {
      take(*call);
    } else if (const auto* const copy = std::get_if<Copy>(&step)) {
      copied = {copy->source, copy->target};
      copied_params = {copy->bytes};
      buffers = &copied;
      params = &copied_params;
      after = &copy->after;
    }
  }
  Straight(const Straight&) = delete;
  Straight& operator=(const Straight&) = delete;

 private:
  template <class Called>
  void take(const Called& step) {
    buffers = &step.buffers;
    params = &step.params;
    after = &step.after;
  }
};

}  // namespace

LaunchTable::LaunchTable(const Engine& engine, Shapes shapes, ArenaLayout layout,
                         unsigned char* arena, DeviceMemory* device)
    : engine_(engine),
      device_(device),
      shapes_(std::move(shapes)),
      memory_(engine, shapes_, std::move(layout), arena, device) {
  const Plan& plan = engine.plan();
  for (size_t i = 0; i < plan.every_step.size(); ++i) add_step(i);
  statuses_.resize(entries_.size());
  phases_.resize(plan.segments.size());
  set_up_for_.resize(plan.segments.size());
  for (const Segment& s : plan.segments) {
    const bool known = (s.straight || s.host_call) && !s.late;
    for (size_t i = s.begin; known && i < s.end; ++i) fill(i, true);
  }
}

// Takes places in the tables; fill() writes them.
void LaunchTable::add_step(size_t step) {
  const Routine& routine = engine_.routine(step);
  const Straight s(*engine_.plan().every_step[step]);
  entries_.push_back({routine.function, static_cast<uint32_t>(pointers_.size()),
                      static_cast<uint32_t>(params_.size()), s.parallel});
  if (!s.buffers) return;
  has_parallel_step_ |= s.parallel;
  // So that a step without buffers or parameters still gets addresses inside the tables.
  pointers_.resize(pointers_.size() + std::max<size_t>(s.buffers->size(), 1));
  params_.insert(params_.end(), routine.constants.begin(), routine.constants.end());
  params_.resize(params_.size() + std::max<size_t>(s.params->size(), 1));
}

// patch: memory of the caller is not bound yet and may change from run to run.
void LaunchTable::fill(size_t step, bool patch) {
  const Plan& plan = engine_.plan();
  const Routine& routine = engine_.routine(step);
  const Straight s(*plan.every_step[step]);
  const Entry& entry = entries_[step];
  int64_t* const params = &params_[entry.first_param];
  for (size_t i = 0; i < s.params->size(); ++i) {
    params[routine.constants.size() + i] = shapes_.at((*s.params)[i]);
  }
  sizes_scratch_.clear();
  for (size_t i = 0; i < s.buffers->size(); ++i) {
    const BufferRef& ref = (*s.buffers)[i];
    const auto pointer = entry.first_buffer + static_cast<uint32_t>(i);
    const RunMemory::View view = memory_.view(ref);
    const int32_t binding = plan.binding_of_buffer[static_cast<size_t>(ref.buffer)];
    pointers_[pointer] = view.data;
    sizes_scratch_.push_back(view.bytes);
    if (patch && binding >= 0) {
      patches_.push_back({pointer, binding, memory_.displacement(ref)});
    }
  }
  if (routine.check) routine.check(params, sizes_scratch_.data());
}

void LaunchTable::set_up(size_t segment) {
  const Segment& s = engine_.plan().segments[segment];
  for (size_t i = s.begin; i < s.end; ++i) fill(i, false);
  phases_[segment].clear();
  set_up_for_[segment] = epoch_;
}

void LaunchTable::bind(const braze_memory* memory, const braze_run_options& options) {
  if (engine_.plan().has_late_sizes()) {
    shapes_.forget_run();
    ++epoch_;
  }
  if (!memory_.bind(memory, options)) return;
  for (const Patch& p : patches_) {
    unsigned char* const base = memory_.address(static_cast<size_t>(p.binding));
    pointers_[p.pointer] = base ? base + p.displacement : nullptr;
  }
}

std::vector<int64_t> LaunchTable::buffer_bytes(size_t step) {
  const Straight s(*engine_.plan().every_step[step]);
  std::vector<int64_t> out;
  for (const BufferRef& ref : *s.buffers) out.push_back(memory_.view(ref).bytes);
  return out;
}

void LaunchTable::point(const std::vector<unsigned char*>& addresses) {
  memory_.point(addresses);
  for (const Patch& p : patches_) {
    unsigned char* const base = addresses[static_cast<size_t>(p.binding)];
    pointers_[p.pointer] = base ? base + p.displacement : nullptr;
  }
}

bool LaunchTable::must_follow(size_t earlier, size_t later) {
  const Plan& plan = engine_.plan();
  const Straight a(*plan.every_step[earlier]);
  const Straight b(*plan.every_step[later]);
  const auto own = static_cast<int32_t>(earlier - plan.list_begin[earlier]);
  if (std::find(b.after->begin(), b.after->end(), own) != b.after->end()) return true;
  const auto in_arena = [&plan](const BufferRef& ref) {
    return plan.buffers[static_cast<size_t>(ref.buffer)].kind == BufferKind::kArena;
  };
  for (const BufferRef& x : *a.buffers) {
    if (!in_arena(x)) continue;
    const RunMemory::View p = memory_.view({x.buffer, -1});
    for (const BufferRef& y : *b.buffers) {
      if (x.buffer == y.buffer || !in_arena(y)) continue;
      const RunMemory::View q = memory_.view({y.buffer, -1});
      if (p.data < q.data + q.bytes && q.data < p.data + p.bytes) return true;
    }
  }
  return false;
}

const std::vector<Phase>& LaunchTable::phases(size_t segment) {
  std::vector<Phase>& phases = phases_[segment];
  if (!phases.empty()) return phases;
  const Segment& s = engine_.plan().segments[segment];
  Phase current{s.begin, s.begin, false};
  for (size_t step = s.begin; step < s.end; ++step) {
    bool joins = step - current.begin < kMaxPhaseSteps;
    for (size_t other = current.begin; joins && other < step; ++other) {
      // Two serial steps run one after the other on worker 0 anyway.
      const bool ordered = !entries_[other].parallel && !entries_[step].parallel;
      joins = ordered || !must_follow(other, step);
    }
    if (!joins) {
      phases.push_back(current);
      current = {step, step, false};
    }
    current.end = step + 1;
    current.parallel |= entries_[step].parallel;
  }
  phases.push_back(current);
  return phases;
}

void LaunchTable::check_statuses(size_t begin, size_t end) {
  for (size_t step = begin; step < end; ++step) {
    if (statuses_[step] != 0) fail_step(engine_, step, statuses_[step]);
  }
}

void fail_step(const Engine& engine, size_t step, int32_t status) {
  const bool index = status == BRAZE_KERNEL_INDEX_OUT_OF_RANGE;
  fail(BRAZE_ERROR_EXECUTION, describe(engine, step), ": ",
       index ? "an index in the data is out of range"
             : "the data has a value the op does not allow",
       " (status ", status, "); check the inputs of this run");
}

int64_t LaunchTable::integer(const BufferRef& ref) {
  const RunMemory::View view = memory_.view(ref);
  int64_t out = 0;
  if (!view.data || view.bytes < int64_t{sizeof(out)}) {
    fail(BRAZE_ERROR_FORMAT, "buffer ", ref.buffer, " of the engine has no integer where a step ",
         "reads one; build the engine again");
  }
  read(&out, view.data, sizeof(out));
  return out;
}

bool LaunchTable::flag(const BufferRef& ref) {
  const RunMemory::View view = memory_.view(ref);
  if (!view.data || view.bytes < 1) {
    fail(BRAZE_ERROR_FORMAT, "buffer ", ref.buffer, " of the engine has no byte where a step ",
         "reads a condition; build the engine again");
  }
  unsigned char out = 0;
  read(&out, view.data, sizeof(out));
  return out != 0;
}

void LaunchTable::set_counter(int32_t buffer, int64_t value) {
  const RunMemory::View view = memory_.view({buffer, -1});
  if (!view.data || view.bytes < int64_t{sizeof(value)}) {
    fail(BRAZE_ERROR_FORMAT, "buffer ", buffer, " of the engine has no room for a counter; ",
         "build the engine again");
  }
  if (device_) return device_->write(view.data, value);
  std::memcpy(view.data, &value, sizeof(value));
}

void LaunchTable::give(const Sizes& step) {
  std::vector<std::pair<int32_t, int64_t>> values;
  std::vector<DeviceMemory::Read> reads;  // of a device: all of them with one wait
  values.reserve(step.known.size());      // so that these may point to it
  for (const KnownSize& known : step.known) {
    if (known.size >= 0) {
      values.emplace_back(known.symbol, shapes_.at(known.size));
      continue;
    }
    const Symbol& symbol = engine_.plan().symbols[static_cast<size_t>(known.symbol)];
    const auto& source = std::get<ElementSource>(symbol.source);
    const RunMemory::View view = memory_.view({source.buffer, -1});
    constexpr int64_t bytes = sizeof(int64_t);
    if (!view.data || source.element >= view.bytes / bytes) {
      fail(BRAZE_ERROR_FORMAT, "buffer ", source.buffer, " of the engine has no element ",
           source.element, ", which is a size; build the engine again");
    }
    const unsigned char* const from = view.data + source.element * bytes;
    int64_t& value = values.emplace_back(known.symbol, 0).second;
    if (device_) {
      reads.push_back({&value, from, bytes});
    } else {
      std::memcpy(&value, from, sizeof(value));
    }
  }
  if (!reads.empty()) device_->read(reads.data(), reads.size());
  ++epoch_;
  shapes_.assign(values, {});
}

void LaunchTable::carry(const Loop& loop, bool first, const std::vector<int32_t>& forgotten) {
  // All is read for the old sizes before anything changes.
  std::vector<std::pair<int32_t, int64_t>> values;
  for (const CarriedSize& size : loop.sizes) {
    values.emplace_back(size.symbol, shapes_.at(first ? size.first : size.next));
  }
  std::vector<RunMemory::View> sources;
  for (const Carried& c : loop.carried) {
    if (first && !c.first) {
      sources.push_back({nullptr, -1});
    } else {
      sources.push_back(memory_.view(first ? *c.first : c.next));
    }
  }
  if (!values.empty() || !forgotten.empty()) {
    ++epoch_;
    shapes_.assign(values, forgotten);
  }
  for (size_t i = 0; i < sources.size(); ++i) {
    if (sources[i].bytes < 0) continue;
    const int32_t buffer = loop.carried[i].target;
    // Checked before the target may get other memory: it may be the source itself.
    const int64_t needed = memory_.buffer_bytes(static_cast<size_t>(buffer));
    if (needed > sources[i].bytes) {
      fail(BRAZE_ERROR_FORMAT, "loop '", loop.name, "' carries ", sources[i].bytes,
           " bytes where ", needed, " are needed; build the engine again");
    }
    const RunMemory::View target = memory_.view({buffer, -1});
    if (target.data == sources[i].data || target.bytes == 0) continue;
    if (device_) {
      device_->copy(target.data, sources[i].data, target.bytes);
    } else {
      std::memmove(target.data, sources[i].data, static_cast<size_t>(target.bytes));
    }
  }
}

LaunchTable::DebugView LaunchTable::debug_view(size_t index) {
  const DebugTensor& d = engine_.plan().debug[index];
  const RunMemory::View view = memory_.view(d.ref);
  const int64_t element = format::kDTypes[d.dtype].bytes;
  DebugView out{view.data, {}, tensor_bytes(shapes_, d.shape, element, d.name)};
  if (out.bytes > view.bytes) {
    fail(BRAZE_ERROR_FORMAT, "debug tensor '", d.name, "' leaves its buffer; build it again");
  }
  for (const int32_t dim : d.shape) out.dims.push_back(shapes_.at(dim));
  return out;
}

}  // namespace braze
