// The requests that run, by tenant and name: a tenant neither learns of the requests of others nor ends them.
// Thread-safe.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "common/base/mutex.h"

namespace moestro::router {

class RunningRequests {
 private:
  using Name = std::pair<std::string, std::string>;  // tenant, id

 public:
  // One that runs, for as long as this object lives.
  class Entry {
   public:
    Entry(Entry&& other) noexcept : table_(std::exchange(other.table_, nullptr)), name_(std::move(other.name_)) {}
    Entry& operator=(Entry&&) = delete;
    ~Entry() {
      if (table_ == nullptr) return;
      const MutexLock lock(table_->mutex_);
      table_->running_.erase(name_);
    }

    // Abort has ended it.
    bool aborted() const {
      const MutexLock lock(table_->mutex_);
      return table_->running_.at(name_).aborted;
    }

   private:
    friend class RunningRequests;
    Entry(RunningRequests& table, Name name) : table_(&table), name_(std::move(name)) {}

    RunningRequests* table_;
    Name name_;
  };

  // `cancel` makes the request's call end as CANCELLED. It must not block, and is not called once the entry is gone.
  // ALREADY_EXISTS if a request of this tenant and name runs. The table must outlive the entry.
  absl::StatusOr<Entry> Begin(const std::string& tenant, const std::string& id, std::function<void()> cancel) {
    const MutexLock lock(mutex_);
    if (!running_.emplace(Name(tenant, id), Running{.cancel = std::move(cancel)}).second) {
      return absl::AlreadyExistsError(absl::StrCat("request_id: a request named ", id, " is running"));
    }
    return Entry(*this, {tenant, id});
  }

  // NOT_FOUND if no request of this tenant and name runs.
  absl::Status Abort(const std::string& tenant, const std::string& id) {
    const MutexLock lock(mutex_);
    const auto found = running_.find({tenant, id});
    if (found == running_.end()) return absl::NotFoundError("request_id: no such request is running");
    found->second.aborted = true;
    found->second.cancel();
    return absl::OkStatus();
  }

 private:
  struct Running {
    std::function<void()> cancel;
    bool aborted = false;
  };

  Mutex mutex_;
  std::map<Name, Running> running_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace moestro::router
