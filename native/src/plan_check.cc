// The checks that relate several fields; src/braze/engine/validate.py makes the same.
#include <set>

#include "plan.h"
#include "record_reader.h"

namespace braze {
namespace {

using format::BufferKind;
using format::SizeOpCode;

bool below(int64_t value, size_t count) {
  return value >= 0 && static_cast<uint64_t>(value) < count;
}

void check_sizes(const Plan& plan) {
  for (size_t i = 0; i < plan.sizes.size(); ++i) {
    const SizeOp& size = plan.sizes[i];
    const bool symbol = size.op == SizeOpCode::kSym;
    if (size.op == SizeOpCode::kConst) continue;
    const bool fits =
        symbol ? below(size.a, plan.symbols.size()) : below(size.a, i) && below(size.b, i);
    require(fits, cat("size ", i), "its operands are out of range");
  }
}

bool axis_gives(const Plan& plan, const AxisSource& source, size_t symbol) {
  const std::vector<int32_t>& shape = plan.inputs[static_cast<size_t>(source.input)].shape;
  const auto axis = static_cast<size_t>(source.axis);
  if (axis >= shape.size()) return false;
  const SizeOp& size = plan.sizes[static_cast<size_t>(shape[axis])];
  return size.op == SizeOpCode::kSym && size.a == static_cast<int64_t>(symbol);
}

void find_late_sizes(Plan& plan) {
  for (const SizeOp& size : plan.sizes) {
    bool late = false;
    if (size.op == SizeOpCode::kSym) {
      const Symbol& symbol = plan.symbols[static_cast<size_t>(size.a)];
      late = !std::holds_alternative<AxisSource>(symbol.source);
    } else if (size.op != SizeOpCode::kConst) {
      late = plan.late_size[static_cast<size_t>(size.a)] ||
             plan.late_size[static_cast<size_t>(size.b)];
    }
    plan.late_size.push_back(late);
    plan.late |= late;
  }
}

void check_symbols(Plan& plan) {
  for (size_t i = 0; i < plan.symbols.size(); ++i) {
    const auto* const source = std::get_if<AxisSource>(&plan.symbols[i].source);
    const bool given = !source || axis_gives(plan, *source, i);
    require(given, cat("symbol ", plan.symbols[i].name), "its input axis does not give it");
  }
  find_late_sizes(plan);
  for (size_t i = 0; i < plan.inputs.size(); ++i) {
    require(!plan.is_late_binding(i), cat("input ", plan.inputs[i].name),
            "its shape is known only in the run");
  }
  for (size_t i = 0; i < plan.buffers.size(); ++i) {
    const Buffer& b = plan.buffers[i];
    const bool needed = b.kind == BufferKind::kInput || b.kind == BufferKind::kWeight;
    const bool late = needed && plan.is_late(b.bytes);
    require(!late, cat("buffer ", i), "its size is known too late");
  }
}

void check_buffers(const Plan& plan, uint64_t weights_bytes) {
  for (size_t i = 0; i < plan.buffers.size(); ++i) {
    const Buffer& b = plan.buffers[i];
    if (b.kind != BufferKind::kWeight) continue;
    const bool inside = static_cast<uint64_t>(b.offset) <= weights_bytes;
    require(inside, cat("buffer ", i), "the weight lies outside its section");
    require(b.offset % plan.target.alignment == 0, cat("buffer ", i), "the weight is not aligned");
  }
  for (const Weight& w : plan.weights) {
    const auto offset = static_cast<uint64_t>(w.offset);
    const bool inside =
        offset <= weights_bytes && static_cast<uint64_t>(w.bytes) <= weights_bytes - offset;
    require(inside, cat("weight ", w.name), "it reaches outside its section");
    require(offset % format::kWeightAlign == 0, cat("weight ", w.name), "it is not aligned");
  }
}

void check_content(const Plan& plan, const Binding& b, bool input, const std::string& where) {
  const bool integer = std::string_view(format::kDTypes[b.dtype].name).find("int") <= 1;
  require(input && b.value.empty() && integer, where,
          "bounds are for integers of inputs that are not specialised");
  size_t count = 1;
  for (const int32_t index : b.shape) {
    const SizeOp& size = plan.sizes[static_cast<size_t>(index)];
    const auto most = static_cast<int64_t>(format::kMaxBounded);
    const bool known = size.op == SizeOpCode::kConst && size.a >= 0 && size.a <= most;
    count *= known ? static_cast<size_t>(size.a) : 0;
    count = count > format::kMaxBounded ? 0 : count;
  }
  require(count == b.content.size(), where, "one symbol an element is needed");
  for (const int32_t symbol : b.content) {
    const SymbolSource& source = plan.symbols[static_cast<size_t>(symbol)].source;
    require(std::holds_alternative<ElementSource>(source), where,
            "a symbol of its content is not read from memory");
  }
}

void check_bindings(Plan& plan) {
  std::set<std::string_view> names;
  plan.binding_of_buffer.assign(plan.buffers.size(), -1);
  for (size_t i = 0; i < plan.num_bindings(); ++i) {
    const Binding& b = plan.binding(i);
    const bool input = i < plan.inputs.size();
    const std::string where = cat("tensor ", b.name);
    require(names.insert(b.name).second, where, "the name is used twice");
    const auto buffer = static_cast<size_t>(b.buffer);
    const BufferKind kind = input ? BufferKind::kInput : BufferKind::kOutput;
    require(plan.buffers[buffer].kind == kind, where, "its buffer has the wrong kind");
    require(input || b.value.empty(), where, "an output has a value");
    const auto element = static_cast<size_t>(format::kDTypes[b.dtype].bytes);
    require(b.value.size() % element == 0, where, "its value is cut short");
    if (!b.content.empty()) check_content(plan, b, input, where);
    require(plan.binding_of_buffer[buffer] < 0, where, "its buffer is bound twice");
    plan.binding_of_buffer[buffer] = static_cast<int32_t>(i);
  }
  for (size_t i = 0; i < plan.buffers.size(); ++i) {
    const BufferKind kind = plan.buffers[i].kind;
    const bool callers = kind == BufferKind::kInput || kind == BufferKind::kOutput;
    require(!callers || plan.binding_of_buffer[i] >= 0, cat("buffer ", i), "nothing is bound to it");
  }
}

void check_profile(const Plan& plan, const Profile& profile) {
  require(profile.ranges.size() == plan.symbols.size(), "profile", "one range a symbol is needed");
  for (size_t s = 0; s < profile.ranges.size(); ++s) {
    const auto& [low, opt, high] = profile.ranges[s];
    const bool given = !std::holds_alternative<AxisSource>(plan.symbols[s].source);
    require((given || 0 <= low) && low <= opt && opt <= high, "profile",
            "a range is not min <= opt <= max");
  }
  require(profile.offsets.size() == plan.buffers.size(), "profile", "one offset a buffer is needed");
  for (size_t i = 0; i < profile.offsets.size(); ++i) {
    if (plan.buffers[i].kind != BufferKind::kArena) continue;
    const int64_t offset = profile.offsets[i];
    if (offset == -1) continue;  // placed when its size is known
    const bool placed =
        offset >= 0 && offset <= profile.arena_bytes && offset % plan.target.alignment == 0;
    require(placed, "profile", "an arena offset is misplaced");
  }
}

}  // namespace

void check_plan(Plan& plan, uint64_t weights_bytes) {
  const int64_t alignment = plan.target.alignment;
  require((alignment & (alignment - 1)) == 0, "alignment", "it is no power of two");
  check_sizes(plan);
  check_symbols(plan);
  check_buffers(plan, weights_bytes);
  check_bindings(plan);
  check_steps(plan);
  require(!plan.profiles.empty(), "profiles", "there is none");
  for (const Profile& profile : plan.profiles) check_profile(plan, profile);
}

}  // namespace braze
