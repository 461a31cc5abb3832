// Has the requests of a file answered that its journal does not have yet.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/mutex.h"
#include "common/batch/journal.h"
#include "common/batch/reply.h"
#include "common/batch/request_file.h"

namespace moestro::batch {

// Sends requests to whoever answers them. Thread-safe.
class Executor {
 public:
  virtual ~Executor() = default;
  virtual Reply Execute(const Request& request) = 0;  // blocks
  // Ends the calls that run, soon, and those that begin later at once; the replies do not matter.
  virtual void Cancel() = 0;
};

struct RunOptions {
  int in_flight = 64;                // requests at once
  std::chrono::seconds patience{0};  // gives up if nothing at all was answered for this long; 0: never
  // For an executor that computes in this process, which a request may end; that request would end the next process,
  // too. What was under way when a process ended runs alone: before all others of its run, and while no other run with
  // this mutex has one that runs alone. A request fails that was alone when a process ended, twice. So processes that
  // are killed for another reason fail no requests that were under way. Null: no request ends this process.
  Mutex* alone = nullptr;
};

struct Progress {
  size_t all = 0;
  Journal::Counts counts = {};      // of all runs
  uint64_t generated_tokens = 0;    // of this run
  double seconds = 0;               // since it began
  std::optional<double> left = {};  // seconds; none: nothing was answered yet
  std::string waiting_for = {};     // what requests wait for before another try; empty: nothing
};

// Requests begin in the order of the file, and end in any; RunOptions::alone has an exception. Each answer goes to the
// journal at once. What another try may change is tried again (reply.h).
class BatchRun {
 public:
  // All must outlive the run.
  BatchRun(const RequestFile& file, Journal& journal, Executor& executor, const RunOptions& options);

  // Returns when every request has its result. Otherwise results stay in the journal, and the error is CANCELLED after
  // Stop; UNAVAILABLE when patience ends; PERMISSION_DENIED: the server lets the caller send nothing; those of
  // RequestFile::Read and Journal::Append. Calls `on_progress` about five times a second, on this thread. Call it once.
  absl::Status Run(const std::function<void(const Progress&)>& on_progress);

  // Ends the run soon. Any thread, any time.
  void Stop() { End(absl::CancelledError("stopped")); }

 private:
  using Clock = std::chrono::steady_clock;

  void Work();
  struct Turn {
    size_t index = 0;  // of the request
    bool alone = false;
  };
  std::optional<Turn> Next();
  absl::Status RunOne(const Turn& turn);
  absl::StatusOr<Reply> Try(const Turn& turn, const Request& request);
  absl::StatusOr<Reply> TryMarked(const Turn& turn, const Request& request);
  bool Ended() const;
  void Wait(const Reply& reply, int tries, uint64_t random);
  void End(const absl::Status& status);
  Progress Now() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const RequestFile& file_;
  Journal& journal_;
  Executor& executor_;
  const RunOptions options_;
  const Journal::Counts before_;
  const Clock::time_point begun_ = Clock::now();
  mutable Mutex mutex_;
  Condition changed_;
  std::vector<size_t> suspects_ ABSL_GUARDED_BY(mutex_);  // that run alone, the last one next
  bool runs_alone_ ABSL_GUARDED_BY(mutex_) = false;       // one of them
  size_t next_ ABSL_GUARDED_BY(mutex_) = 0;
  int working_ ABSL_GUARDED_BY(mutex_) = 0;
  int waiting_ ABSL_GUARDED_BY(mutex_) = 0;  // for another try
  std::string waiting_for_ ABSL_GUARDED_BY(mutex_);
  Clock::time_point answered_ ABSL_GUARDED_BY(mutex_) = Clock::now();  // when the last answer came
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace moestro::batch
