#include "services/decode/pool_grower.h"

#include <algorithm>
#include <string>
#include <utility>

#include "common/telemetry/log.h"

namespace moestro::decode {
namespace {

// Memory of others comes back in seconds, not in milliseconds.
constexpr std::chrono::seconds kPauseWithoutMemory{5};
// Of one extension: it takes some tens of milliseconds, so that waiting requests go on in between.
constexpr int64_t kMostBytes = int64_t{64} << 20;

}  // namespace

PoolGrower::PoolGrower(kv::KvPool& pool, Options options) : pool_(pool), options_(std::move(options)) {
  pool_.NotifyWhenShort(options_.free_pages, [this] {
    {
      const std::lock_guard lock(mutex_);
      short_ = true;
    }
    changed_.notify_all();
  });
  thread_ = std::thread([this] { Loop(); });
}

PoolGrower::~PoolGrower() {
  pool_.NotifyWhenShort(0, nullptr);
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

bool PoolGrower::Step(kv::KvPool& pool, const Options& options) {
  const kv::KvPool::Stats stats = pool.stats();
  const int64_t page_bytes = pool.geometry().page_bytes();
  const int64_t absent = pool.geometry().page_count - stats.total_pages;
  const bool grows = stats.most_pages > stats.total_pages;
  // One that does not grow looks whether it can again: it refuses what is too large, so nothing is lacking.
  const int64_t least = grows ? 0 : 1;
  const int64_t wanted =
      std::max(least, std::max<int64_t>(0, options.free_pages - stats.free_pages) + stats.lacking_pages);
  if (absent == 0 || wanted == 0) return false;
  const int64_t most = std::max<int64_t>(1, kMostBytes / page_bytes);
  const absl::StatusOr<int64_t> spare = options.spare_bytes();
  const int64_t pages = std::min({wanted, absent, most, spare.value_or(0) / page_bytes});
  const absl::Status status = pages > 0 ? pool.Extend(pages) : absl::ResourceExhaustedError("no memory is left");
  if (status.ok() != grows) {
    pool.SetGrowing(status.ok());
    if (status.ok()) {
      LogInfo("the KV pool grows again");
    } else {
      LogWarning("the KV pool stays at {} of {} tokens: {}", stats.total_pages * pool.geometry().page_tokens,
                 pool.geometry().page_count * pool.geometry().page_tokens, std::string(status.message()));
    }
  }
  return status.ok();
}

void PoolGrower::Loop() {
  std::unique_lock lock(mutex_);
  while (!stop_) {
    short_ = false;
    lock.unlock();
    const bool grew = Step(pool_, options_);
    const kv::KvPool::Stats stats = pool_.stats();
    const bool has_memory = stats.total_pages < stats.most_pages || stats.total_pages == pool_.geometry().page_count;
    lock.lock();
    if (grew) continue;
    if (has_memory) {
      changed_.wait(lock, [this] { return stop_ || short_; });
    } else {
      changed_.wait_for(lock, kPauseWithoutMemory, [this] { return stop_; });
    }
  }
}

}  // namespace moestro::decode
