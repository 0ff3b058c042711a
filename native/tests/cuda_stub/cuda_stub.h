// Control of the driver for tests, libcuda.so.1, which runs "kernels" of kernels.cc on the host.
//
// Work on a stream is done as late as the rules of CUDA allow, the nodes of a graph in the order
// least like that in which they were recorded, so that a missing wait gives wrong results.
#pragma once

#include <cstdint>

extern "C" {

// Forgets log, failures and settings. Objects stay.
void stub_reset();
// The call-th call from now (from 1) fails with `code`; a sticky failure is that of all later calls.
void stub_fail(int64_t call, int code, int sticky);
int64_t stub_calls();  // since the reset
int stub_failed();     // whether the failure has happened
// What is alive: memory, pinned memory, streams, events, graphs, instances, modules, contexts. Empty
// when nothing is.
const char* stub_live();
const char* stub_log();         // a line a call, "" when none
const char* stub_violations();  // a line for each use of dead memory
void stub_clear_log();
// Work of a library on a stream, or in its capture; `work` is called with the argument and freed.
int stub_put(void* stream, void (*work)(void*), void* argument, void (*release)(void*));
void stub_drop();  // all that is alive, as when a context is lost

enum StubSetting {
  kStubVersion,       // of the driver; 13000 at first
  kStubDevices,       // how many; 1 at first
  kStubCapability,    // 90 at first
  kStubMemory,        // bytes of the device; unlimited at first
  kStubRefuseUpdate,  // graphs cannot be updated
  kStubMemoryOf,      // the number of the device that all memory is said to be of; 0 at first
  kStubSettings,
};
void stub_set(int setting, int64_t value);
}
