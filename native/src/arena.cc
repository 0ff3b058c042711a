#include "arena.h"

#include <sys/mman.h>

#include <utility>

#include "error.h"

namespace braze {
namespace {

constexpr int64_t kHugePageBytes = int64_t{2} << 20;

}  // namespace

Arena::Arena(int64_t bytes) {
  // Large arenas use huge pages (far fewer TLB misses); small ones would only waste memory.
  const bool huge = bytes >= 2 * kHugePageBytes;
  int64_t wanted = 0;
  if (!__builtin_add_overflow(bytes, huge ? kHugePageBytes : 1, &wanted)) {
    mapped_bytes_ = static_cast<size_t>(wanted);
    mapping_ =
        mmap(nullptr, mapped_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  }
  if (!mapping_ || mapping_ == MAP_FAILED) {
    mapping_ = nullptr;
    fail(BRAZE_ERROR_EXECUTION, "no memory for the ", bytes,
         " bytes of working memory this profile needs; use fewer contexts or a smaller profile");
  }
  data_ = static_cast<unsigned char*>(mapping_);
  if (huge) {
    const auto address = reinterpret_cast<uintptr_t>(mapping_);
    const auto page = static_cast<uintptr_t>(kHugePageBytes);
    data_ += (page - address % page) % page;
    madvise(data_, static_cast<size_t>(bytes), MADV_HUGEPAGE);  // a hint: failure is harmless
  }
}

Arena::~Arena() {
  if (mapping_) munmap(mapping_, mapped_bytes_);
}

Arena::Arena(Arena&& other) noexcept
    : mapping_(std::exchange(other.mapping_, nullptr)),
      mapped_bytes_(other.mapped_bytes_),
      data_(other.data_) {}

Arena& Arena::operator=(Arena&& other) noexcept {
  std::swap(mapping_, other.mapping_);
  std::swap(mapped_bytes_, other.mapped_bytes_);
  std::swap(data_, other.data_);
  return *this;
}

}  // namespace braze
