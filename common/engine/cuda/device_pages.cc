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

DevicePages::Resident* DevicePages::Find(uint64_t lease) {
  const auto found = std::ranges::find(residents_, lease, &Resident::lease);
  return found == residents_.end() ? nullptr : &*found;
}

absl::Status DevicePages::CopyMissingPages(const kv::KvPages& pages, int64_t tokens, uint8_t* packed,
                                           device::Stream& stream) {
  MutexLock lock(mutex_);
  const Resident* resident = pages.lease() == 0 ? nullptr : Find(pages.lease());
  const int64_t present = resident == nullptr ? 0 : resident->tokens;
  for (int64_t block = present / kv::kPageTokens; block < CeilDiv(tokens, kv::kPageTokens) && present < tokens;
       ++block) {
    if (pages.page(block) >= geometry_.page_count) {
      return absl::InternalError(
          absl::StrFormat("page %d of a KV pool of %d pages on the device", pages.page(block), geometry_.page_count));
    }
    uint8_t* const page = memory_.data() + pages.page(block) * geometry_.page_bytes();
    const kv::KvGeometry& of_pool = pages.geometry();
    const bool is_packed = of_pool.kv_heads > 0;
    MOE_RETURN_IF_ERROR(stream.CopyToDevice(is_packed ? packed : page, pages.PageMemory(block), of_pool.page_bytes()));
    if (is_packed) MOE_RETURN_IF_ERROR(stream.Launch(Unpack(of_pool, packed, page)));
    ++copied_pages_;
  }
  return absl::OkStatus();
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
