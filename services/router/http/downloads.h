// Downloads of files that run at once. Each has a worker until its client has read it, which may be slow on purpose: so
// they are few, and never all workers. The router owns it, endpoints use it.
#pragma once

#include <map>
#include <string>

#include "absl/status/status.h"
#include "common/base/mutex.h"

namespace moestro::router {

// Thread-safe.
class Downloads {
 public:
  static constexpr int kMost = 64;  // of all keys: a quarter of the workers that are beside the queue's
  static constexpr int kMostOfATenant = 8;

  // RESOURCE_EXHAUSTED: as many are running as may. Each Begin that is OK needs an End.
  absl::Status Begin(const std::string& tenant) {
    MutexLock lock(mutex_);
    int& running = running_[tenant];
    if (running == kMostOfATenant || all_ == kMost) {
      if (running == 0) running_.erase(tenant);
      return absl::ResourceExhaustedError("too many downloads run at once; try again when one has ended");
    }
    ++running;
    ++all_;
    return absl::OkStatus();
  }
  void End(const std::string& tenant) {
    MutexLock lock(mutex_);
    --all_;
    if (const auto found = running_.find(tenant); --found->second == 0) running_.erase(found);
  }

 private:
  Mutex mutex_;
  int all_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<std::string, int> running_ ABSL_GUARDED_BY(mutex_);  // by tenant
};

}  // namespace moestro::router
