#include "common/platform/shared_cores.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "common/base/status.h"

namespace moestro {
namespace {

// The byte of whoever measures; below are the roles'.
constexpr int64_t kTurn = 2;
// Between two looks at the quota: an operator who changes it waits as long as for any other effect.
constexpr std::chrono::seconds kLook{1};

using Role = SharedCores::Role;

Role OtherThan(Role role) { return role == Role::kDecode ? Role::kPrefill : Role::kDecode; }

// Where the file holds the group whose quota a role has; 0: none.
off_t GroupOffset(Role role) { return (static_cast<off_t>(role) + 1) * static_cast<off_t>(sizeof(uint64_t)); }

}  // namespace

absl::StatusOr<std::unique_ptr<SharedCores>> SharedCores::Open(const std::string& path, Role role, WorkerPool& pool,
                                                               const Options& options) {
  const int descriptor = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (descriptor < 0) return absl::InvalidArgumentError(absl::StrCat("cannot make ", path, ": ", strerror(errno)));
  std::unique_ptr<SharedCores> cores(new SharedCores(descriptor, role, pool, options));
  cores->ReadQuota();
  cores->Use(/*beside=*/true);
  return cores;
}

void SharedCores::Begin() {
  if (!computes_) computes_ = file_.TryLock(static_cast<int64_t>(role_));
}

void SharedCores::End() {
  if (computes_) file_.Unlock(static_cast<int64_t>(role_));
  computes_ = false;
}

void SharedCores::ReadQuota() {
  if (options_.follow_quota) quota_ = ReadCpuQuota(options_.cgroup_root);
  next_look_ = std::chrono::steady_clock::now() + kLook;
  const uint64_t group = quota_ ? quota_->group : 0;
  // A role that cannot tell its group counts as one that shares none.
  [[maybe_unused]] const ssize_t written = pwrite(descriptor_, &group, sizeof(group), GroupOffset(role_));
}

bool SharedCores::SharesQuota() const {
  uint64_t group = 0;
  const ssize_t read = pread(descriptor_, &group, sizeof(group), GroupOffset(OtherThan(role_)));
  return read == sizeof(group) && group != 0 && group == quota_->group;
}

int SharedCores::Use(bool beside) {
  int most = quota_ ? ThreadsOf(*quota_) : pool_.threads();
  // Decode has the odd one: prefill's prompts wait anyway.
  if (quota_ && beside && SharesQuota()) most = role_ == Role::kDecode ? (most + 1) / 2 : std::max(1, most / 2);
  pool_.LimitActiveThreads(most);
  pool_.SetActiveThreads(beside ? pool_.own_threads() : pool_.threads());
  return pool_.active_threads();
}

int SharedCores::Follow() {
  if (std::chrono::steady_clock::now() >= next_look_) ReadQuota();
  return Use(file_.IsLocked(static_cast<int64_t>(OtherThan(role_))));
}

absl::Status SharedCores::Measure(absl::FunctionRef<absl::Status(bool alone)> measure,
                                  std::chrono::milliseconds patience) {
  const auto deadline = std::chrono::steady_clock::now() + patience;
  bool has_turn = false;
  while (!(has_turn = file_.TryLock(kTurn)) && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  Begin();
  const absl::Cleanup end = [&] {
    Use(/*beside=*/true);
    End();
    if (has_turn) file_.Unlock(kTurn);
  };
  const int own = Use(/*beside=*/true);
  MOE_RETURN_IF_ERROR(measure(/*alone=*/false));
  return Follow() > own ? measure(/*alone=*/true) : absl::OkStatus();
}

}  // namespace moestro
