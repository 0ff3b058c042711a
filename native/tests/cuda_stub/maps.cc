// Tensor maps, which the driver for tests keeps as what they were made of.
#include "state.h"

namespace stub {
namespace {

constexpr char kMagic[8] = "tmap";

struct Map {
  char magic[8];
  uint32_t rank;
  uint32_t shape[5];
  uint64_t strides[5];  // bytes
  uint32_t element;     // bytes
};
static_assert(sizeof(Map) <= 128, "a CUtensorMap has room for it");

}  // namespace

size_t map_arguments(void** arguments) {
  size_t count = 0;
  Map map;
  while (std::memcmp(arguments[count], kMagic, sizeof kMagic) == 0) {
    std::memcpy(&map, arguments[count++], sizeof map);
    for (uint32_t k = 0; k < map.rank; ++k) {
      const auto size = *static_cast<int32_t*>(arguments[count + k]);
      const auto stride = *static_cast<int64_t*>(arguments[count + map.rank + k]);
      const uint32_t mirrored = map.rank - 1 - k;
      const uint64_t wanted = mirrored ? map.strides[mirrored - 1] / map.element : 1;
      if (static_cast<uint32_t>(size) != map.shape[mirrored]) complain("a shape is not its map's");
      if (static_cast<uint64_t>(stride) != wanted) complain("a stride is not its map's");
    }
    count += 2 * size_t{map.rank};
  }
  return count;
}

}  // namespace stub

using namespace stub;

API int cuTensorMapEncodeTiled(void* to, int element, uint32_t rank, void* address,
                               const uint64_t* shape, const uint64_t* strides, const uint32_t* box,
                               const uint32_t*, int, int, int, int) {
  const Call call("map", false);
  if (call.code) return call.code;
  const auto place = reinterpret_cast<Address>(address);
  if (reinterpret_cast<Address>(to) % 64 || place % 16 || rank < 1 || rank > 5) return kInvalidValue;
  Map map{};
  std::memcpy(map.magic, kMagic, sizeof kMagic);
  map.rank = rank;
  map.element = element == 0 ? 1 : element == 1 ? 2 : element == 2 ? 4 : 8;
  uint64_t bytes = map.element;
  for (uint32_t k = 0; k < rank; ++k) {
    if (!shape[k] || !box[k] || box[k] > 256) return kInvalidValue;
    map.shape[k] = static_cast<uint32_t>(shape[k]);
    if (k) {
      map.strides[k - 1] = strides[k - 1];
      if (strides[k - 1] % 16) return kInvalidValue;
      bytes = strides[k - 1] * shape[k];
    }
  }
  if (!inside(state().device, place, bytes)) complain("a map of memory that is not the device's");
  std::memcpy(to, &map, sizeof map);
  return 0;
}
