#include "services/prefill/distributed/revocable_pages.h"

#include <mutex>

namespace moestro::prefill {

RevocablePages::RevocablePages(const kv::KvPages& pages)
    : numbers_(pages.numbers().begin(), pages.numbers().end()), pages_(pages.geometry(), pages.base(), numbers_) {}

absl::Status RevocablePages::Read(int64_t layer, IndexRange positions, uint8_t* to) const {
  std::shared_lock lock(mutex_);
  if (revoked_) return absl::CancelledError("the run has been given up");
  if (pages_.capacity() > 0) pages_.ReadRows(layer, positions, reinterpret_cast<uint16_t*>(to));
  return absl::OkStatus();
}

absl::Status RevocablePages::Write(int64_t layer, IndexRange positions, const uint8_t* from) const {
  std::shared_lock lock(mutex_);
  if (revoked_) return absl::CancelledError("the run has been given up");
  if (pages_.capacity() > 0) pages_.StoreRows(layer, positions, reinterpret_cast<const uint16_t*>(from));
  return absl::OkStatus();
}

void RevocablePages::Revoke() {
  std::lock_guard lock(mutex_);
  revoked_ = true;
}

}  // namespace moestro::prefill
