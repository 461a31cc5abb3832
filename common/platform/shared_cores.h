// Cores follow the work: a role's workers use the cores of the node's other roles while these compute nothing. Roles
// agree through a file: each holds the lock of its byte while it computes, and the kernel releases it when the role
// dies. So there is no message, and nothing to restart: whoever computes looks before each layer, and a role that
// begins has its cores within a layer of the other's model.
//
// Where a control group limits the node's CPU time, no more workers take part than it has time for. Roles that share
// the group share that, too, while both compute.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "common/platform/cgroup_cpu.h"
#include "common/platform/lock_file.h"
#include "common/platform/worker_pool.h"

namespace moestro {

class SharedCores {  // for the thread that runs the pool
 public:
  enum class Role : int64_t { kDecode = 0, kPrefill = 1 };  // the bytes
  struct Options {
    bool follow_quota = true;      // false where somebody chose the number of threads
    std::string cgroup_root = {};  // `root` of cgroup.h
  };

  // `pool` has the others' cores as its lent CPUs; it must outlive the result. INVALID_ARGUMENT if the file cannot be
  // made. It stays: a role that starts later must find the same one.
  static absl::StatusOr<std::unique_ptr<SharedCores>> Open(const std::string& path, Role role, WorkerPool& pool,
                                                           const Options& options);

  // From Begin to End this role computes. Either may be called again.
  void Begin();
  void End();

  // From the next run of the pool, its workers are all of them while no other role computes, and its own ones
  // otherwise, as far as a quota allows. Returns their number. A system call. Not during a run.
  int Follow();

  // Reads the quota again, which may change at any time. Follow does so every second.
  void ReadQuota();
  const std::optional<CpuQuota>& quota() const { return quota_; }

  // For measurements when roles start. Calls `measure` with those workers active that take part while others compute,
  // then once more with those that do otherwise, if there are more and no other role computes. Roles take turns; one
  // that has waited for `patience` goes on all the same. Returns the first error. Afterwards the first ones are active.
  absl::Status Measure(absl::FunctionRef<absl::Status(bool alone)> measure,
                       std::chrono::milliseconds patience = std::chrono::seconds(3));

 private:
  SharedCores(int descriptor, Role role, WorkerPool& pool, const Options& options)
      : descriptor_(descriptor), file_(descriptor), role_(role), pool_(pool), options_(options) {}

  // Makes the workers active that take part beside another role that computes, or alone. Returns their number.
  int Use(bool beside);
  bool SharesQuota() const;

  const int descriptor_;  // of file_
  LockFile file_;
  const Role role_;
  WorkerPool& pool_;
  const Options options_;
  bool computes_ = false;
  std::optional<CpuQuota> quota_;
  std::chrono::steady_clock::time_point next_look_;
};

}  // namespace moestro
