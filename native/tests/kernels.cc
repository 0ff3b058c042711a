// Kernels for the native tests, compiled on their own to an object the ELF loader takes.
// No libc, no C++ library: as generated kernels are.
#include <stdint.h>

namespace {

struct Share {
  int64_t begin;
  int64_t end;
};

Share share(int64_t count, int64_t worker, int64_t num_workers) {
  const int64_t span = (count + num_workers - 1) / num_workers;
  const int64_t begin = worker * span < count ? worker * span : count;
  const int64_t end = begin + span < count ? begin + span : count;
  return {begin, end};
}

// Read-only data: the compiler puts it in .rodata.
const float kTable[8] = {1.f, 2.f, 3.f, 4.f, 5.f, 6.f, 7.f, 8.f};

}  // namespace

extern "C" {

// buffers a, b, out; params count: out = a + b
void add(void* const* buffers, const int64_t* params, int64_t worker, int64_t num_workers,
         int32_t*) {
  const float* a = static_cast<const float*>(buffers[0]);
  const float* b = static_cast<const float*>(buffers[1]);
  float* out = static_cast<float*>(buffers[2]);
  const Share s = share(params[0], worker, num_workers);
  for (int64_t i = s.begin; i < s.end; ++i) out[i] = a[i] + b[i];
}

// buffers a, out; params count: out = a * table[i % 8], through a switch
void table(void* const* buffers, const int64_t* params, int64_t worker, int64_t num_workers,
           int32_t*) {
  const float* a = static_cast<const float*>(buffers[0]);
  float* out = static_cast<float*>(buffers[1]);
  const Share s = share(params[0], worker, num_workers);
  for (int64_t i = s.begin; i < s.end; ++i) {
    switch (i % 8) {
      case 0: out[i] = a[i] + kTable[i % 8]; break;
      case 1: out[i] = a[i] * kTable[i % 8]; break;
      case 2: out[i] = a[i] - kTable[i % 8]; break;
      case 3: out[i] = kTable[i % 8] - a[i]; break;
      case 4: out[i] = -a[i]; break;
      default: out[i] = kTable[i % 8]; break;
    }
  }
}

// buffers a, out; params count: out = 3 a, and status 2 when an element is negative
void checked(void* const* buffers, const int64_t* params, int64_t worker, int64_t num_workers,
             int32_t* status) {
  const float* a = static_cast<const float*>(buffers[0]);
  float* out = static_cast<float*>(buffers[1]);
  const Share s = share(params[0], worker, num_workers);
  for (int64_t i = s.begin; i < s.end; ++i) {
    if (a[i] < 0.f) *status = 2;
    out[i] = a[i] * 3.f;
  }
}

// buffers number (int64), flag (bool): the number less one, and whether it is still above zero
void countdown(void* const* buffers, const int64_t*, int64_t, int64_t, int32_t*) {
  int64_t* number = static_cast<int64_t*>(buffers[0]);
  *number -= 1;
  *static_cast<uint8_t*>(buffers[1]) = *number > 0;
}

// buffers number (int64), flag (bool): whether the number is above zero
void positive(void* const* buffers, const int64_t*, int64_t, int64_t, int32_t*) {
  *static_cast<uint8_t*>(buffers[1]) = *static_cast<const int64_t*>(buffers[0]) > 0;
}

// buffers number (int64), flag (bool): whether the number is odd
void odd(void* const* buffers, const int64_t*, int64_t, int64_t, int32_t*) {
  *static_cast<uint8_t*>(buffers[1]) = *static_cast<const int64_t*>(buffers[0]) & 1;
}

// buffers out (int64): how many workers there were, and one per worker that came by
void census(void* const* buffers, const int64_t*, int64_t worker, int64_t num_workers, int32_t*) {
  int64_t* out = static_cast<int64_t*>(buffers[0]);
  if (worker == 0) out[0] = num_workers;
  out[1 + worker] += 1;
}
}
