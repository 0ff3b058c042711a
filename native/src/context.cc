#include "context.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <limits>
#include <type_traits>

#include "error.h"
#include "executor.h"
#include "run_times.h"

namespace braze {
namespace {

// Of a device that prepares much for each: CUDA graphs. A table of the host is made in no time.
constexpr size_t kMostTables = 8;

template <class T>
int64_t wide(const unsigned char* data, size_t at) {
  T value;
  std::memcpy(&value, data + at * sizeof(T), sizeof(T));
  if (std::is_same_v<T, uint64_t>) {  // no range reaches beyond int64
    return static_cast<int64_t>(std::min<uint64_t>(value, std::numeric_limits<int64_t>::max()));
  }
  return static_cast<int64_t>(value);
}

int64_t integer_at(const unsigned char* data, size_t at, const format::DTypeRow& type) {
  const bool is_signed = type.name[0] == 'i';
  switch (type.bytes) {
    case 1: return is_signed ? wide<int8_t>(data, at) : wide<uint8_t>(data, at);
    case 2: return is_signed ? wide<int16_t>(data, at) : wide<uint16_t>(data, at);
    case 4: return is_signed ? wide<int32_t>(data, at) : wide<uint32_t>(data, at);
    default: return is_signed ? wide<int64_t>(data, at) : wide<uint64_t>(data, at);
  }
}

}  // namespace

Context::Context(std::shared_ptr<const Engine> engine, int32_t profile,
                 const ContextOptions& options)
    : engine_(std::move(engine)), profile_(profile) {
  const Plan& plan = engine_->plan();
  const auto profiles = static_cast<int64_t>(plan.profiles.size());
  if (profile < kAutomaticProfile || profile >= profiles) {
    fail(BRAZE_ERROR_PROFILE, "profile ", profile, " does not exist; the engine has profiles 0..",
         profiles - 1);
  }
  for (size_t i = 0; i < plan.inputs.size(); ++i) {
    const std::vector<int64_t>& dims = engine_->static_dims(i);
    dims_.insert(dims_.end(), dims.begin(), dims.end());
  }
  memory_.resize(plan.num_bindings(), braze_memory{nullptr, 0});
  runner_ = engine_->device().runner(*engine_, options);
}

void Context::check_binding(int32_t binding) const {
  const size_t count = engine_->plan().num_bindings();
  if (binding < 0 || static_cast<size_t>(binding) >= count) {
    fail(BRAZE_ERROR_BINDING, "binding ", binding, " does not exist; the engine has ", count);
  }
}

void Context::check_count(int64_t count) const {
  const auto expected = static_cast<int64_t>(dims_.size());
  if (count != expected) {
    fail(BRAZE_ERROR_SHAPE, "the input shapes have ", count, " dims but the engine's inputs have ",
         expected, " axes");
  }
}

void Context::set_shapes(const int64_t* dims, int64_t count) {
  const Lock lock(mutex_);
  check_count(count);
  prepare(dims);
  dims_.assign(dims, dims + count);
}

void Context::set_input_shape(int32_t input, const int64_t* dims, int32_t rank) {
  const Lock lock(mutex_);
  check_binding(input);
  const Plan& plan = engine_->plan();
  const auto index = static_cast<size_t>(input);
  if (index >= plan.inputs.size()) fail(BRAZE_ERROR_BINDING, "binding ", input, " is an output");
  const Binding& b = plan.inputs[index];
  if (rank != static_cast<int32_t>(b.shape.size())) {
    fail(BRAZE_ERROR_SHAPE, "input '", b.name, "' has ", b.shape.size(), " axes but was given ",
         rank, "; pass a shape of that rank");
  }
  size_t at = 0;
  for (size_t i = 0; i < index; ++i) at += plan.inputs[i].shape.size();
  std::copy(dims, dims + rank, dims_.begin() + static_cast<std::ptrdiff_t>(at));
}

// What inputs hold whose content a profile bounds. Where the memory is another's, only for the choice
// of a profile: the run finds what leaves its one.
SymbolValues Context::contents(const braze_memory* memory) const {
  const Plan& plan = engine_->plan();
  const bool chosen = profile_ != kAutomaticProfile || plan.profiles.size() == 1;
  SymbolValues found;
  for (size_t i = 0; i < plan.inputs.size() && !(runner_ && chosen); ++i) {
    const Binding& b = plan.inputs[i];
    if (b.content.empty()) continue;
    const format::DTypeRow& type = format::kDTypes[b.dtype];
    const auto bytes = static_cast<int64_t>(b.content.size()) * type.bytes;
    if (!memory[i].data || memory[i].bytes < bytes) continue;  // refused where it is bound
    std::array<unsigned char, format::kMaxBounded * sizeof(int64_t)> copy;
    engine_->device().copy(copy.data(), memory[i].data, bytes);
    for (size_t at = 0; at < b.content.size(); ++at) {
      found.emplace_back(b.content[at], integer_at(copy.data(), at, type));
    }
  }
  return found;
}

LaunchTable* Context::find_table(const int64_t* dims, const SymbolValues& contents) {
  const auto fits = [&](const std::unique_ptr<LaunchTable>& table) {
    return std::equal(dims, dims + dims_.size(), table->shapes().input_dims().begin()) &&
           table->shapes().admits(contents);
  };
  const auto found = std::find_if(tables_.rbegin(), tables_.rend(), fits);
  if (found == tables_.rend()) return nullptr;
  std::rotate(found.base() - 1, found.base(), tables_.end());
  return tables_.back().get();
}

void Context::forget_oldest_table() {
  if (runner_) runner_->forget(*tables_.front());
  tables_.erase(tables_.begin());
}

// Returns the table for these shapes, making a new one unless one of the last still fits.
LaunchTable& Context::prepare(const int64_t* dims, const SymbolValues& contents) {
  if (engine_->is_stripped()) {
    fail(BRAZE_ERROR_EXECUTION, "the weights of ", engine_->bytes().name(),
         " were left out when it was built (stripped); refit it before it runs");
  }
  if (LaunchTable* const table = find_table(dims, contents)) return *table;
  const Plan& plan = engine_->plan();
  Shapes shapes(plan, std::vector<int64_t>(dims, dims + dims_.size()), profile_, contents);
  ArenaLayout layout = lay_out(plan, shapes);
  const int64_t bytes = layout.bytes;
  const bool grows = !arena_.data() || arena_.bytes() < bytes;
  while (tables_.size() >= (runner_ ? kMostTables : 1) || (grows && !tables_.empty())) {
    forget_oldest_table();  // those that point into an arena that goes away, too
  }
  if (grows) {
    arena_ = Arena();
    arena_ = Arena(engine_->device(), bytes);
  }
  tables_.push_back(std::make_unique<LaunchTable>(*engine_, std::move(shapes), std::move(layout),
                                                  arena_.data(), runner_.get()));
  return *tables_.back();
}

LaunchTable& Context::prepare_current() {
  size_t at = 0;
  for (const Binding& b : engine_->plan().inputs) {
    for (size_t axis = 0; axis < b.shape.size(); ++axis) {
      if (dims_[at++] == -1) {
        fail(BRAZE_ERROR_SHAPE, "input '", b.name, "' has a dynamic shape that is not set; ",
             "set it before asking for sizes or running");
      }
    }
  }
  return prepare(dims_.data());
}

void Context::binding_shape(int32_t binding, int64_t* dims, int64_t* bytes) {
  const Lock lock(mutex_);
  check_binding(binding);
  const LaunchTable& table = prepare_current();
  const auto index = static_cast<size_t>(binding);
  for (const int32_t size : engine_->plan().binding(index).shape) {
    *dims++ = table.shapes().is_known(size) ? table.shapes().at(size) : -1;
  }
  if (bytes) *bytes = table.binding_bytes(index);
}

void Context::profile(int32_t* profile, int64_t* arena_bytes) {
  const Lock lock(mutex_);
  const LaunchTable& table = prepare_current();
  *profile = static_cast<int32_t>(table.shapes().profile());
  *arena_bytes = table.arena_bytes();
}

void Context::bind(int32_t binding, const braze_memory& memory) {
  const Lock lock(mutex_);
  check_binding(binding);
  memory_[static_cast<size_t>(binding)] = memory;
}

Context::Request Context::request() {
  const Lock lock(mutex_);
  prepare_current();
  return {dims_, memory_};
}

void Context::run(const Request& request, const braze_run_options& options) {
  const Lock lock(mutex_);
  execute_locked(request.dims.data(), request.memory.data(), options);
}

void Context::run(const int64_t* dims, int64_t count, const braze_memory* memory,
                  int64_t memory_count, const braze_run_options& options) {
  const Lock lock(mutex_);
  check_count(count);
  if (memory_count != static_cast<int64_t>(memory_.size())) {
    fail(BRAZE_ERROR_BINDING, "memory is given for ", memory_count,
         " tensors but the engine has ", memory_.size(), " inputs and outputs");
  }
  execute_locked(dims, memory, options);
}

void Context::enqueue(void* stream, const braze_run_options& options) {
  const Lock lock(mutex_);
  if (!runner_) {
    fail(BRAZE_ERROR_EXECUTION, "this engine runs on the host and has no use for a stream of a GPU; ",
         "enqueue it on a stream of braze");
  }
  LaunchTable& table = prepare_current();
  engine_->verify_weights();
  runner_->enqueue(table, memory_.data(), options, stream);
}

void Context::synchronize() {
  const Lock lock(mutex_);
  if (runner_) runner_->synchronize();
}

void Context::execute_locked(const int64_t* dims, const braze_memory* memory,
                             const braze_run_options& options) {
  const int32_t wanted = options.num_workers ? options.num_workers : engine_->threads();
  if (wanted < 1 || wanted > static_cast<int32_t>(format::kMaxWorkers)) {
    fail(BRAZE_ERROR_EXECUTION, "num_workers is ", wanted, ", outside 1..", format::kMaxWorkers);
  }
  // the plan has scratch memory for as many workers as it was built for
  const int32_t workers = std::min<int32_t>(wanted, static_cast<int32_t>(engine_->plan().threads));
  LaunchTable& table = prepare(dims, contents(memory));
  engine_->verify_weights();
  if (runner_) return runner_->run(table, memory, options);
  const auto start = std::chrono::steady_clock::now();
  table.bind(memory, options);
  execute(*engine_, table, workers, options);
  if (!options.times) return;
  const std::chrono::nanoseconds spent = std::chrono::steady_clock::now() - start;
  write_times({0, 0, 0, spent.count(), 0}, *options.times);
}

}  // namespace braze
