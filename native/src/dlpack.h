// The C structs of DLPack 0.8, as https://dmlc.github.io/dlpack defines them.
#pragma once

#include <cstdint>

namespace braze {

struct DlDevice {
  int32_t type;
  int32_t number;
};

struct DlType {
  uint8_t code;
  uint8_t bits;
  uint16_t lanes;
};

struct DlTensor {
  void* data;
  DlDevice device;
  int32_t rank;
  DlType type;
  int64_t* shape;
  int64_t* strides;  // null: row-major
  uint64_t byte_offset;
};

struct DlManagedTensor {
  DlTensor tensor;
  void* owner;
  void (*deleter)(DlManagedTensor*);
};

}  // namespace braze
