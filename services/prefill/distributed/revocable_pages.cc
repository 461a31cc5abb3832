#include "services/prefill/distributed/revocable_pages.h"

#include <algorithm>
#include <cstring>
#include <mutex>

namespace moestro::prefill {

RevocablePages::RevocablePages(const kv::KvPages& pages)
    : numbers_(pages.numbers().begin(), pages.numbers().end()), pages_(pages.geometry(), pages.base(), numbers_) {}

template <typename Copy>
absl::Status RevocablePages::ForPages(int64_t layer, IndexRange positions, Copy copy) const {
  std::shared_lock lock(mutex_);
  if (revoked_) return absl::CancelledError("the run has been given up");
  if (pages_.capacity() == 0) return absl::OkStatus();
  const int64_t page_tokens = pages_.geometry().page_tokens;
  const int64_t token_bytes = 2 * pages_.geometry().kv_dim;
  for (int64_t begin = positions.begin; begin < positions.end;) {
    const int64_t end = std::min(positions.end, (begin / page_tokens + 1) * page_tokens);
    copy(reinterpret_cast<uint8_t*>(pages_.Token(layer, begin)), (begin - positions.begin) * token_bytes,
         static_cast<size_t>((end - begin) * token_bytes));
    begin = end;
  }
  return absl::OkStatus();
}

absl::Status RevocablePages::Read(int64_t layer, IndexRange positions, uint8_t* to) const {
  return ForPages(layer, positions,
                  [to](const uint8_t* page, int64_t offset, size_t bytes) { std::memcpy(to + offset, page, bytes); });
}

absl::Status RevocablePages::Write(int64_t layer, IndexRange positions, const uint8_t* from) const {
  return ForPages(layer, positions,
                  [from](uint8_t* page, int64_t offset, size_t bytes) { std::memcpy(page, from + offset, bytes); });
}

void RevocablePages::Revoke() {
  std::lock_guard lock(mutex_);
  revoked_ = true;
}

}  // namespace moestro::prefill
