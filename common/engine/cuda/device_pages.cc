#include "common/engine/cuda/device_pages.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "common/base/math.h"
#include "common/base/status.h"
#include "common/kernels/cuda/call.h"

namespace moestro::engine {
namespace {

// Leases that are remembered: more than run at a time. One that was forgotten is copied again.
constexpr size_t kMostResidents = 256;

// The next page's copy waits for it, on the same stream.
device::Kernel Unpack(const kv::KvGeometry& of_pool, const uint8_t* packed, uint8_t* page) {
  const cuda::UnpackBlocksArgs args{.packed = reinterpret_cast<const uint16_t*>(packed),
                                    .layers = of_pool.num_layers,
                                    .kv_heads = of_pool.kv_heads,
                                    .head_dim = of_pool.heads().dim,
                                    .rows = reinterpret_cast<uint16_t*>(page)};
  return {.name = "unpack", .cost = {}, .run = [args](void* native) {
            return LaunchStatus(cuda::LaunchUnpackBlocks(args, static_cast<cuda::Stream>(native)));
          }};
}

}  // namespace

DevicePages::DevicePages(device::Memory memory, const kv::KvGeometry& geometry, int64_t places)
    : memory_(std::move(memory)),
      geometry_(geometry),
      place_count_(places),
      places_(static_cast<size_t>(places)),
      place_of_(static_cast<size_t>(geometry.page_count), kNone) {}

DevicePages::Resident* DevicePages::Find(uint64_t lease) {
  const auto found = std::ranges::find(residents_, lease, &Resident::lease);
  return found == residents_.end() ? nullptr : &*found;
}

void DevicePages::Use(Place& place, int lane) {
  place.last_use = ++uses_;
  ++place.users[static_cast<size_t>(lane)];
}

absl::StatusOr<uint32_t> DevicePages::PlaceOf(uint32_t page, bool* is_new) {
  uint32_t& place_of_page = place_of_[page];
  *is_new = place_of_page == kNone;
  if (!*is_new) return place_of_page;
  const auto is_free = [](const Place& place) {
    return std::ranges::all_of(place.users, [](int users) { return users == 0; });
  };
  Place* oldest = nullptr;
  for (Place& place : places_) {
    if (is_free(place) && (oldest == nullptr || place.last_use < oldest->last_use)) oldest = &place;
  }
  if (oldest == nullptr) {
    return absl::ResourceExhaustedError(
        absl::StrFormat("the device has room for %d KV pages, and the step's sequences have more", places_.size()));
  }
  if (oldest->page != kNone) place_of_[oldest->page] = kNone;
  oldest->page = page;
  return place_of_page = static_cast<uint32_t>(oldest - places_.data());
}

absl::Status DevicePages::Take(int lane, const kv::KvPages& pages, int64_t tokens, int64_t visible, uint8_t* packed,
                               device::Stream& stream, std::vector<uint32_t>& to) {
  MutexLock lock(mutex_);
  const Resident* resident = pages.lease() == 0 ? nullptr : Find(pages.lease());
  const int64_t present = resident == nullptr ? 0 : resident->tokens;
  const kv::KvGeometry& of_pool = pages.geometry();
  const bool is_packed = of_pool.kv_heads > 0;
  const int64_t blocks = CeilDiv(visible, kv::kPageTokens);
  // First those that have places, which the others must not take.
  for (int64_t block = 0; block < blocks; ++block) {
    const uint32_t page = pages.page(block);
    if (page >= geometry_.page_count) {
      return absl::InternalError(
          absl::StrFormat("page %d of a KV pool of %d pages on the device", page, geometry_.page_count));
    }
    if (place_of_[page] != kNone) Use(places_[place_of_[page]], lane);
  }
  for (int64_t block = 0; block < blocks; ++block) {
    bool is_new = false;
    MOE_ASSIGN_OR_RETURN(const uint32_t index, PlaceOf(pages.page(block), &is_new));
    Place& place = places_[index];
    if (is_new) Use(place, lane);
    to.push_back(index);
    // Another lane's copy may not have arrived.
    const bool is_there = !is_new && (place.filling_lane < 0 || place.filling_lane == lane);
    if (is_new) place.filling_lane = lane;
    const int64_t begin = block * kv::kPageTokens;
    const bool has_tokens = std::min(tokens, begin + kv::kPageTokens) <= present;
    if (begin >= tokens || (is_there && has_tokens)) continue;
    uint8_t* const page = memory_.data() + index * geometry_.page_bytes();
    MOE_RETURN_IF_ERROR(stream.CopyToDevice(is_packed ? packed : page, pages.PageMemory(block), of_pool.page_bytes()));
    if (is_packed) MOE_RETURN_IF_ERROR(stream.Launch(Unpack(of_pool, packed, page)));
    ++copied_pages_;
  }
  return absl::OkStatus();
}

void DevicePages::LetGo(int lane, bool done) {
  MutexLock lock(mutex_);
  for (Place& place : places_) {
    place.users[static_cast<size_t>(lane)] = 0;
    if (place.filling_lane != lane) continue;
    place.filling_lane = -1;
    if (done) continue;
    place_of_[place.page] = kNone;
    place.page = kNone;
  }
}

void DevicePages::MarkResident(uint64_t lease, int64_t tokens) {
  if (lease == 0) return;
  MutexLock lock(mutex_);
  Resident* resident = Find(lease);
  if (resident == nullptr) {
    if (residents_.size() < kMostResidents) {
      resident = &residents_.emplace_back();
    } else {
      resident = &*std::ranges::min_element(residents_, {}, &Resident::last_use);
    }
    resident->lease = lease;
  }
  resident->tokens = tokens;
  resident->last_use = ++uses_;
}

cuda::KvPagesView DevicePages::View(int64_t layer, const uint32_t* list) const {
  return {.pages = memory_.data(),
          .list = list,
          .page_bytes = geometry_.page_bytes(),
          .layer_offset = layer * geometry_.page_tokens * geometry_.kv_dim * static_cast<int64_t>(sizeof(uint16_t)),
          .page_tokens = geometry_.page_tokens,
          .kv_dim = geometry_.kv_dim};
}

int64_t DevicePages::copied_pages() const {
  MutexLock lock(mutex_);
  return copied_pages_;
}

}  // namespace moestro::engine
