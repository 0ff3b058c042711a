// The CUDA driver library, opened when an engine first needs it; nothing of CUDA is linked.
#pragma once

#include <cstddef>
#include <cstdint>

namespace braze {

using CuAddress = uint64_t;  // of device memory
using CuHandle = void*;      // of a context, module, function, stream, event or graph

// CUlaunchAttribute: an id and a union of 64 bytes.
struct CuAttribute {
  int id;
  int padding;
  union {
    int number;  // of attributes that are one
    unsigned numbers[16];
  };
};

// CUlaunchConfig.
struct CuLaunch {
  unsigned grid[3];
  unsigned block[3];
  unsigned shared_bytes;
  CuHandle stream;
  const CuAttribute* attributes;
  unsigned num_attributes;
};

// CUgraphExecUpdateResultInfo.
struct CuUpdate {
  int result;
  CuHandle node;
  CuHandle from;
};

// The functions of libcuda that the runtime calls, by their versioned names. Each returns 0 on
// success. https://docs.nvidia.com/cuda/cuda-driver-api
struct CudaDriver {
  // Throws a target error where there is no driver or no device.
  static const CudaDriver& get();
  // Whether this process got it by a fork, which a driver does not survive.
  bool is_lost() const;

  uint32_t fork_generation;  // when it was opened

  int (*init)(unsigned);
  int (*version)(int*);
  int (*device_get)(int*, int);
  int (*device_attribute)(int*, int attribute, int device);
  int (*device_name)(char*, int, int device);
  int (*context_retain)(CuHandle*, int device);
  int (*context_release)(int device);
  int (*context_push)(CuHandle);
  int (*context_pop)(CuHandle*);
  int (*module_load)(CuHandle*, const void* image);
  int (*module_unload)(CuHandle);
  int (*module_function)(CuHandle*, CuHandle module, const char* name);
  int (*function_set)(CuHandle, int attribute, int value);
  int (*allocate)(CuAddress*, size_t);
  int (*free)(CuAddress);
  int (*host_allocate)(void**, size_t, unsigned flags);
  int (*host_free)(void*);
  int (*to_device)(CuAddress, const void*, size_t, CuHandle stream);
  int (*to_host)(void*, CuAddress, size_t, CuHandle stream);
  int (*copy)(CuAddress, CuAddress, size_t);  // from and to any place; waits
  int (*on_device)(CuAddress, CuAddress, size_t, CuHandle stream);
  int (*fill)(CuAddress, unsigned char, size_t, CuHandle stream);
  int (*pointer_attributes)(unsigned count, int* attributes, void** results, CuAddress);
  int (*stream_create)(CuHandle*, unsigned flags, int priority);
  int (*stream_destroy)(CuHandle);
  int (*stream_wait)(CuHandle);
  int (*stream_id)(CuHandle, unsigned long long*);  // which no other stream of the process ever has
  int (*stream_wait_event)(CuHandle stream, CuHandle event, unsigned flags);
  int (*capture_begin)(CuHandle stream, int mode);
  int (*capture_end)(CuHandle stream, CuHandle* graph);
  int (*graph_instantiate)(CuHandle*, CuHandle graph, unsigned long long flags);
  int (*graph_update)(CuHandle instance, CuHandle graph, CuUpdate*);
  int (*graph_launch)(CuHandle, CuHandle stream);
  int (*graph_exec_destroy)(CuHandle);
  int (*graph_destroy)(CuHandle);
  int (*launch)(const CuLaunch*, CuHandle function, void** arguments, void** extra);
  int (*tensor_map)(void* map, int element, uint32_t rank, void* address, const uint64_t* shape,
                    const uint64_t* strides, const uint32_t* box, const uint32_t* element_strides,
                    int interleave, int swizzle, int promotion, int fill);
  int (*event_create)(CuHandle*, unsigned flags);
  int (*event_destroy)(CuHandle);
  int (*event_record)(CuHandle, CuHandle stream);
  int (*event_wait)(CuHandle);
  int (*event_elapsed)(float* milliseconds, CuHandle start, CuHandle end);
  int (*error_name)(int, const char**);
};

// Throws an execution error that says what was being done unless `code` is 0.
void cuda_check(int code, const char* what);

}  // namespace braze
