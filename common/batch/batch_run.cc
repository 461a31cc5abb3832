#include "common/batch/batch_run.h"

#include <algorithm>
#include <list>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/exceptions.h"
#include "common/base/random_bits.h"
#include "common/base/status.h"

namespace moestro::batch {
namespace {

constexpr std::chrono::milliseconds kProgressInterval{200};
// Tries of a request whose server has an error of its own.
constexpr int kFewTries = 3;
// Processes that ended while a request ran alone in them, before it fails. One may be killed for another reason.
constexpr int kMostDeaths = 2;

std::string LineId(const FileIdentity& file, size_t index) {
  return absl::StrFormat("batch_req_%016x%06x", file.checksum, index);
}

}  // namespace

BatchRun::BatchRun(const RequestFile& file, Journal& journal, Executor& executor, const RunOptions& options)
    : file_(file), journal_(journal), executor_(executor), options_(options), before_(journal.counts()) {
  if (options.alone == nullptr) return;
  suspects_ = journal.Suspects();
  std::ranges::reverse(suspects_);
}

absl::Status BatchRun::Run(const std::function<void(const Progress&)>& on_progress) {
  std::list<std::thread> threads;
  const size_t open = file_.size() - before_.done;
  const size_t count = std::min(open, static_cast<size_t>(options_.in_flight));
  for (size_t i = 0; i < count; ++i) {
    {
      MutexLock lock(mutex_);
      ++working_;
    }
    try {
      threads.emplace_back([this] { Work(); });
    } catch (const std::system_error& error) {
      {
        MutexLock lock(mutex_);
        --working_;
      }
      if (i == 0) return absl::ResourceExhaustedError(absl::StrCat("no thread can be started: ", error.what()));
      break;  // fewer at once
    }
  }
  MutexLock lock(mutex_);
  while (working_ > 0) {
    changed_.wait_for(lock, kProgressInterval,
                      [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return working_ == 0; });
    const Progress progress = Now();
    const bool gives_up = options_.patience.count() > 0 && Clock::now() - answered_ > options_.patience;
    const std::string why = waiting_for_.empty() ? "" : absl::StrCat(": ", waiting_for_);
    lock.unlock();
    if (gives_up && progress.counts.done < progress.all) {
      End(absl::UnavailableError(absl::StrCat("nothing was answered for ", options_.patience.count(), " s", why)));
    }
    on_progress(progress);
    lock.lock();
  }
  absl::Status status = status_;
  lock.unlock();
  for (std::thread& thread : threads) thread.join();
  status.Update(journal_.Sync());
  return status;
}

Progress BatchRun::Now() const {
  const Journal::Counts counts = journal_.counts();
  Progress progress{.all = file_.size(), .counts = counts};
  progress.generated_tokens = counts.generated_tokens - before_.generated_tokens;
  progress.seconds = std::chrono::duration<double>(Clock::now() - begun_).count();
  const size_t done = counts.done - before_.done;
  if (done > 0)
    progress.left = progress.seconds / static_cast<double>(done) * static_cast<double>(file_.size() - counts.done);
  if (waiting_ > 0) progress.waiting_for = waiting_for_;
  return progress;
}

void BatchRun::Work() {
  while (const std::optional<Turn> turn = Next()) {
    const absl::Status status = CatchExceptions([&] { return RunOne(*turn); });
    if (!status.ok()) End(status);
    if (!turn->alone) continue;
    MutexLock lock(mutex_);
    runs_alone_ = false;
    changed_.notify_all();
  }
  MutexLock lock(mutex_);
  --working_;
  changed_.notify_all();
}

std::optional<BatchRun::Turn> BatchRun::Next() {
  MutexLock lock(mutex_);
  while (runs_alone_) changed_.wait(lock);
  if (!ended_ && !suspects_.empty()) {
    const Turn turn{.index = suspects_.back(), .alone = true};
    suspects_.pop_back();
    runs_alone_ = true;
    return turn;
  }
  while (!ended_ && next_ < file_.size()) {
    const size_t index = next_++;
    if (!journal_.Has(index)) return Turn{.index = index};
  }
  return std::nullopt;
}

absl::Status BatchRun::RunOne(const Turn& turn) {
  const size_t index = turn.index;
  MOE_ASSIGN_OR_RETURN(const Request request, file_.Read(index));
  if (turn.alone && journal_.DeathsOf(index).alone >= kMostDeaths) {
    const Reply ended{.status = 500,
                      .body = R"({"type": "error", "error": {"type": "server_error", "code": "process_ended", )"
                              R"("message": "the server's process ended twice while this request ran alone"}})"};
    return journal_.Append(index, ResultOf(request, LineId(file_.identity(), index), ended));
  }
  const RandomWords random(index, request.custom_id);
  for (int tries = 1; !Ended(); ++tries) {
    MOE_ASSIGN_OR_RETURN(const Reply reply, Try(turn, request));
    if (Ended()) break;
    const Verdict verdict = Judge(reply);
    if (verdict == Verdict::kRefused) {
      return absl::PermissionDeniedError(absl::StrCat("the server refuses every request: ", Describe(reply)));
    }
    if (verdict == Verdict::kRetry || (verdict == Verdict::kRetryFew && tries < kFewTries)) {
      Wait(reply, tries, random[static_cast<uint64_t>(tries)]);
      continue;
    }
    {
      MutexLock lock(mutex_);
      answered_ = Clock::now();
    }
    return journal_.Append(index, ResultOf(request, LineId(file_.identity(), index), reply));
  }
  return absl::OkStatus();
}

absl::StatusOr<Reply> BatchRun::Try(const Turn& turn, const Request& request) {
  if (options_.alone == nullptr) return executor_.Execute(request);
  if (!turn.alone) return TryMarked(turn, request);
  MutexLock alone(*options_.alone);
  return TryMarked(turn, request);
}

absl::StatusOr<Reply> BatchRun::TryMarked(const Turn& turn, const Request& request) {
  MOE_RETURN_IF_ERROR(journal_.Begin(turn.index, turn.alone));
  Reply reply = executor_.Execute(request);
  MOE_RETURN_IF_ERROR(journal_.Leave(turn.index, turn.alone));
  return reply;
}

// Waits before the next try, or until the run ends.
void BatchRun::Wait(const Reply& reply, int tries, uint64_t random) {
  const std::chrono::milliseconds pause = PauseAfter(tries, reply, random);
  std::string why = Describe(reply);
  MutexLock lock(mutex_);
  waiting_for_ = std::move(why);
  ++waiting_;
  changed_.wait_for(lock, pause, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return ended_; });
  --waiting_;
}

bool BatchRun::Ended() const {
  MutexLock lock(mutex_);
  return ended_;
}

void BatchRun::End(const absl::Status& status) {
  {
    MutexLock lock(mutex_);
    if (std::exchange(ended_, true)) return;
    status_ = status;
    changed_.notify_all();
  }
  executor_.Cancel();
}

}  // namespace moestro::batch
