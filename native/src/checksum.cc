#include "checksum.h"

#include <algorithm>
#include <cstring>

#include "engine_format.h"

namespace braze {
namespace {

constexpr size_t kLanes = format::kChecksumLanes;
constexpr size_t kBlockBytes = kLanes * 8;

uint64_t mix(uint64_t x) {
  x ^= x >> 32;
  x *= format::kChecksumMix1;
  x ^= x >> 29;
  x *= format::kChecksumMix2;
  return x ^ (x >> 32);
}

struct Lanes {
  uint64_t products[kLanes] = {};
  uint64_t sums[kLanes] = {};
  uint64_t keys[kLanes] = {};

  Lanes() {
    for (size_t lane = 0; lane < kLanes; ++lane) keys[lane] = (lane + 1) * format::kChecksumKey;
  }

  // Written so that compilers turn it into vector code, which is what makes it memory-bound.
  void add(const unsigned char* block) {
    uint64_t words[kLanes];
    std::memcpy(words, block, kBlockBytes);
    for (size_t lane = 0; lane < kLanes; ++lane) {
      const uint64_t keyed = words[lane] ^ keys[lane];
      products[lane] += (keyed & 0xffffffffu) * (keyed >> 32);
      sums[lane] += words[lane];
      keys[lane] += kLanes * format::kChecksumKey;
    }
  }
};

}  // namespace

uint64_t chunk_hash(const unsigned char* data, size_t size) {
  Lanes lanes;
  const size_t whole = size / kBlockBytes * kBlockBytes;
  for (size_t at = 0; at < whole; at += kBlockBytes) lanes.add(data + at);
  if (whole < size) {
    unsigned char last[kBlockBytes] = {};
    std::memcpy(last, data + whole, size - whole);
    lanes.add(last);
  }
  uint64_t h = size;
  for (size_t lane = 0; lane < kLanes; ++lane) {
    h = mix(h ^ (lanes.products[lane] + lanes.sums[lane ^ 1]));
  }
  return h;
}

uint64_t combine_chunk_hashes(const std::vector<uint64_t>& hashes, uint64_t size) {
  uint64_t h = mix(size ^ format::kChecksumKey);
  for (const uint64_t chunk : hashes) h = mix(h ^ chunk) + format::kChecksumKey;
  return h;
}

uint64_t checksum(const unsigned char* data, size_t size) {
  std::vector<uint64_t> hashes;
  for (size_t at = 0; at < size; at += format::kChecksumChunkBytes) {
    hashes.push_back(chunk_hash(data + at, std::min(size - at, format::kChecksumChunkBytes)));
  }
  return combine_chunk_hashes(hashes, size);
}

}  // namespace braze
