#include "cuda_graphs.h"

#include <algorithm>

namespace braze {
namespace {

constexpr int kRelaxed = 2;  // CU_STREAM_CAPTURE_MODE_RELAXED: other threads may do as they please

CudaGraph capture(CuHandle stream, const std::function<void()>& record) {
  const CudaDriver& driver = CudaDriver::get();
  CudaGraph graph;
  cuda_check(driver.capture_begin(stream, kRelaxed), "recording the network");
  try {
    record();
  } catch (...) {
    driver.capture_end(stream, graph.out());
    throw;
  }
  cuda_check(driver.capture_end(stream, graph.out()), "recording the network");
  return graph;
}

}  // namespace

CuHandle CudaGraphs::find(const Key& key) {
  for (Entry& entry : entries_) {
    if (entry.table != key.table || entry.segment != key.segment) continue;
    if (entry.addresses != key.addresses) continue;
    entry.used = ++clock_;
    return entry.exec.get();
  }
  return nullptr;
}

// One of a table that is gone, else a new one, else the one used longest ago.
CudaGraphs::Entry& CudaGraphs::free_entry() {
  for (Entry& entry : entries_) {
    if (!entry.table) return entry;
  }
  if (entries_.size() < capacity_) return entries_.emplace_back();
  return *std::min_element(entries_.begin(), entries_.end(),
                           [](const Entry& a, const Entry& b) { return a.used < b.used; });
}

CuHandle CudaGraphs::make(const Key& key, CuHandle stream, const std::function<void()>& record) {
  const CudaDriver& driver = CudaDriver::get();
  const CudaGraph graph = capture(stream, record);
  Entry& entry = free_entry();
  entry.table = nullptr;  // until all is well
  CuUpdate update = {};
  if (!entry.exec || driver.graph_update(entry.exec.get(), graph.get(), &update) != 0) {
    cuda_check(driver.graph_instantiate(entry.exec.out(), graph.get(), 0), "preparing the network");
  }
  entry.table = key.table;
  entry.segment = key.segment;
  entry.addresses = key.addresses;
  entry.used = ++clock_;
  return entry.exec.get();
}

void CudaGraphs::forget(const LaunchTable* table) {
  for (Entry& entry : entries_) {
    if (entry.table == table) entry.table = nullptr;
  }
}

}  // namespace braze
