// The checksum of engine files; src/braze/engine/checksum.py defines it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace braze {

uint64_t chunk_hash(const unsigned char* data, size_t size);
uint64_t combine_chunk_hashes(const std::vector<uint64_t>& hashes, uint64_t size);
uint64_t checksum(const unsigned char* data, size_t size);

}  // namespace braze
