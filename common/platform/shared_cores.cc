#include "common/platform/shared_cores.h"

#include <fcntl.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace moestro {

absl::StatusOr<std::unique_ptr<SharedCores>> SharedCores::Open(const std::string& path, Role role, WorkerPool& pool) {
  const int descriptor = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (descriptor < 0) return absl::InvalidArgumentError(absl::StrCat("cannot make ", path, ": ", strerror(errno)));
  return std::unique_ptr<SharedCores>(new SharedCores(descriptor, role, pool));
}

void SharedCores::Begin() {
  if (!computes_) computes_ = file_.TryLock(static_cast<int64_t>(role_));
}

void SharedCores::End() {
  if (computes_) file_.Unlock(static_cast<int64_t>(role_));
  computes_ = false;
}

int SharedCores::Follow() {
  const Role other = role_ == Role::kDecode ? Role::kPrefill : Role::kDecode;
  const int workers = file_.IsLocked(static_cast<int64_t>(other)) ? pool_.own_threads() : pool_.threads();
  if (workers != pool_.active_threads()) pool_.SetActiveThreads(workers);
  return workers;
}

}  // namespace moestro
