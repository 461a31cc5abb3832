#include "common/platform/shared_cores.h"

#include <fcntl.h>

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

}  // namespace

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

absl::Status SharedCores::Measure(absl::FunctionRef<absl::Status(bool alone)> measure,
                                  std::chrono::milliseconds patience) {
  const auto deadline = std::chrono::steady_clock::now() + patience;
  bool has_turn = false;
  while (!(has_turn = file_.TryLock(kTurn)) && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  Begin();
  const absl::Cleanup end = [&] {
    pool_.SetActiveThreads(pool_.own_threads());
    End();
    if (has_turn) file_.Unlock(kTurn);
  };
  pool_.SetActiveThreads(pool_.own_threads());
  MOE_RETURN_IF_ERROR(measure(/*alone=*/false));
  if (pool_.threads() == pool_.own_threads() || Follow() < pool_.threads()) return absl::OkStatus();
  return measure(/*alone=*/true);
}

}  // namespace moestro
