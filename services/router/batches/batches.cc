#include "services/router/batches/batches.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/exceptions.h"
#include "common/base/status.h"
#include "common/batch/request_file.h"
#include "common/batch/result_file.h"
#include "common/telemetry/log.h"
#include "common/text/json/quoted.h"

namespace moestro::router {
namespace {

int64_t Now() { return static_cast<int64_t>(std::time(nullptr)); }

batch::LineError OneError(const absl::Status& status) {
  return {.line = 0, .code = "batch_failed", .param = "", .message = std::string(status.message())};
}

void SetFailed(BatchRecord& batch, std::vector<batch::LineError> errors, int64_t now) {
  batch.status = BatchStatus::kFailed;
  batch.failed_at = now;
  batch.errors = std::move(errors);
}

absl::Status NoBatch(const std::string& id) {
  return absl::NotFoundError(absl::StrCat("there is no batch ", text::Quoted(id)));
}

}  // namespace

Batches::Batches(std::string folder, const BatchLimits& limits, FileStore& files, BatchMetrics& metrics,
                 MakeExecutor make_executor, FileStore::Random random)
    : folder_(std::move(folder)),
      limits_(limits),
      files_(files),
      metrics_(metrics),
      make_executor_(std::move(make_executor)),
      random_(std::move(random)),
      records_(folder_ + "/batches", ".journal") {}

Batches::~Batches() {
  Stop();
  if (lock_ >= 0) ::close(lock_);
}

absl::Status Batches::Start() {
  std::error_code error;
  std::filesystem::create_directories(folder_, error);
  if (error) return absl::NotFoundError(absl::StrCat(folder_, ": ", error.message()));
  lock_ = ::open((folder_ + "/lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (lock_ < 0) return absl::NotFoundError(absl::StrCat(folder_, ": ", std::strerror(errno)));
  if (::flock(lock_, LOCK_EX | LOCK_NB) != 0) {
    return absl::FailedPreconditionError(absl::StrCat(folder_, ": another router has this folder"));
  }
  MOE_RETURN_IF_ERROR(files_.Load());
  MutexLock lock(mutex_);
  MOE_RETURN_IF_ERROR(records_.ReadAll([this](const std::string& id, const nlohmann::ordered_json& record) {
    mutex_.AssertHeld();
    BatchRecord batch = BatchRecord::FromRecord(record);
    if (batch.id != id) return absl::DataLossError("holds no batch of that name");
    batches_[id] = std::move(batch);
    return absl::OkStatus();
  }));
  size_t unfinished = 0;
  for (const auto& [id, batch] : batches_) {
    if (!batch.finished()) {
      Enqueue(batch);
      ++unfinished;
    }
    // Its process may have ended between the two. One that failed may have more in its journal than in its files.
    if (batch.finished() && batch.status != BatchStatus::kFailed) ::unlink(records_.DataOf(id).c_str());
  }
  if (unfinished > 0) LogInfo("{} batches go on ({})", unfinished, folder_);
  metrics_.file_bytes.Set(static_cast<double>(files_.bytes()));
  return absl::OkStatus();
}

void Batches::Stop() {
  std::vector<std::thread*> threads;
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    for (auto& [tenant, line] : lines_) {
      if (line.run != nullptr) line.run->Stop();
      if (line.thread.joinable()) threads.push_back(&line.thread);
    }
    changed_.notify_all();
  }
  for (std::thread* thread : threads) thread->join();
}

Batches::Line& Batches::LineOf(const std::string& tenant) {
  MutexLock lock(mutex_);
  return lines_[tenant];
}

// Throws if it cannot be started.
void Batches::StartThread(const std::string& tenant, Line& line) {
  if (!line.thread.joinable()) line.thread = std::thread([this, tenant, &line] { RunLine(tenant, line); });
}

void Batches::Enqueue(const BatchRecord& batch) {
  Line& line = lines_[batch.tenant];
  StartThread(batch.tenant, line);
  line.waiting.push_back(batch.id);
  metrics_.unfinished.Increment();
  changed_.notify_all();
}

void Batches::RunLine(const std::string& tenant, Line& line) {
  MutexLock lock(mutex_);
  while (true) {
    while (line.waiting.empty() && !stopping_) changed_.wait(lock);
    if (stopping_) return;
    const std::string id = line.waiting.front();
    lock.unlock();
    RunFirst(id, line);
    lock.lock();
    const auto ended = batches_.find(id);                              // unless it is forgotten already
    if (ended != batches_.end() && !ended->second.finished()) return;  // the process ends
    lock.unlock();
    ForgetOld(tenant);
    lock.lock();
  }
}

void Batches::RunFirst(const std::string& id, Line& line) {
  const absl::Status status = CatchExceptions([&] { return RunOne(id, line); });
  if (status.ok()) return;
  LogWarning("{}: {}", id, std::string(status.message()));
  Fail(id, {OneError(status)}, line);
}

// An error fails the batch.
absl::Status Batches::RunOne(const std::string& id, Line& line) {
  const BatchRecord batch = Copy(id);
  batch::RequestFile::Problems problems;
  const auto file = batch::RequestFile::Open(files_.PathOf(batch.input_file),
                                             {.url = batch.endpoint, .most_requests = limits_.requests}, problems);
  if (!file.ok()) {
    if (problems.errors.empty()) return file.status();
    Fail(id, problems.errors, line);
    return absl::OkStatus();
  }
  MOE_ASSIGN_OR_RETURN(const auto journal, batch::Journal::Open(records_.DataOf(id), **file));
  {
    MutexLock changing(line.changing);
    MOE_RETURN_IF_ERROR(Change(id, line, [&, now = Now()](BatchRecord& changed) {
      const batch::Journal::Counts counts = journal->counts();  // of earlier processes
      changed.total = (*file)->size();
      changed.completed = counts.done - counts.failed;
      changed.failed = counts.failed;
      if (changed.status != BatchStatus::kValidating) return;
      changed.status = BatchStatus::kInProgress;
      changed.in_progress_at = now;
    }));
  }
  const absl::Status answered = Answer(id, **file, *journal, line);
  {
    MutexLock lock(mutex_);
    if (stopping_) return absl::OkStatus();
  }
  return Finish(id, **file, *journal, answered, line);
}

void Batches::SetPlaces(int places) {
  MutexLock lock(mutex_);
  places_ = places;
  changed_.notify_all();
}

int Batches::InFlight(const std::string& id) {
  if (limits_.in_flight > 0) return limits_.in_flight;
  MutexLock lock(mutex_);
  while (places_ == 0 && !stopping_ && batches_.at(id).status != BatchStatus::kCancelling) changed_.wait(lock);
  return std::max(1, places_);
}

absl::Status Batches::Answer(const std::string& id, const batch::RequestFile& file, batch::Journal& journal,
                             Line& line) {
  if (const size_t suspects = journal.Suspects().size(); suspects > 0) {
    LogWarning("{}: a router ended while {} of its requests were under way; they run first, each alone", id, suspects);
  }
  const std::unique_ptr<batch::Executor> executor = make_executor_(Copy(id).tenant);
  batch::BatchRun run(file, journal, *executor, {.in_flight = InFlight(id), .alone = &alone_});
  {
    MutexLock lock(mutex_);
    const BatchStatus status = batches_.at(id).status;
    if (stopping_ || status == BatchStatus::kCancelling) return absl::CancelledError("cancelled");
    line.run = &run;
  }
  const absl::Status status =
      CatchExceptions([&] { return run.Run([&](const batch::Progress& progress) { NoteProgress(id, progress); }); });
  MutexLock lock(mutex_);
  line.run = nullptr;  // `run` ends here
  CountOpenRequests();
  return status;
}

void Batches::NoteProgress(const std::string& id, const batch::Progress& progress) {
  MutexLock lock(mutex_);
  BatchRecord& batch = batches_.at(id);
  const size_t completed = progress.counts.done - progress.counts.failed;
  metrics_.answered.Increment(static_cast<double>(completed - batch.completed));
  metrics_.failed.Increment(static_cast<double>(progress.counts.failed - batch.failed));
  batch.completed = completed;
  batch.failed = progress.counts.failed;
  CountOpenRequests();
}

void Batches::CountOpenRequests() {
  size_t open = 0;
  for (const auto& [tenant, line] : lines_) {
    if (line.run == nullptr) continue;
    const BatchRecord& batch = batches_.at(line.waiting.front());
    open += batch.total - batch.completed - batch.failed;
  }
  metrics_.open_requests.Set(static_cast<double>(open));
}

// Writes what there is to the files of the results.
absl::Status Batches::Finish(const std::string& id, const batch::RequestFile& file, const batch::Journal& journal,
                             const absl::Status& answered, Line& line) {
  BatchRecord batch;
  {
    MutexLock changing(line.changing);
    MOE_ASSIGN_OR_RETURN(batch, Change(id, line, [&, now = Now()](BatchRecord& changed) {
                           if (changed.status == BatchStatus::kInProgress) changed.status = BatchStatus::kFinalizing;
                           if (changed.finalizing_at == 0) changed.finalizing_at = now;
                           const batch::Journal::Counts counts = journal.counts();
                           changed.completed = counts.done - counts.failed;
                           changed.failed = counts.failed;
                         }));
  }
  const batch::ResultPaths paths{.output = files_.PathOf(batch.output_file), .errors = files_.PathOf(batch.error_file)};
  MOE_RETURN_IF_ERROR(batch::WriteResults(file, journal, paths));
  batch.has_output = batch.completed > 0;
  batch.has_errors = batch.failed > 0;
  if (batch.has_output) {
    MOE_RETURN_IF_ERROR(files_.Adopt(batch.output_file, batch.tenant, batch.id + "_output.jsonl"));
  } else {
    ::unlink(paths.output.c_str());
  }
  if (batch.has_errors) MOE_RETURN_IF_ERROR(files_.Adopt(batch.error_file, batch.tenant, batch.id + "_error.jsonl"));
  const auto end = [&, now = Now()](BatchRecord& changed) {
    changed.has_output = batch.has_output;
    changed.has_errors = batch.has_errors;
    if (answered.ok()) {
      changed.status = BatchStatus::kCompleted;
      changed.completed_at = now;
    } else if (absl::IsCancelled(answered)) {
      changed.status = BatchStatus::kCancelled;
      changed.cancelled_at = now;
    } else {
      SetFailed(changed, {OneError(answered)}, now);
    }
  };
  // Who sees the end sees it counted, and its place free.
  const auto shown = [&](const BatchRecord& ended) {
    mutex_.AssertHeld();
    (answered.ok()                 ? metrics_.completed
     : absl::IsCancelled(answered) ? metrics_.cancelled
                                   : metrics_.refused)
        .Increment();
    metrics_.file_bytes.Set(static_cast<double>(files_.bytes()));
    LeaveLine(ended, line);
  };
  {
    MutexLock changing(line.changing);
    MOE_RETURN_IF_ERROR(Change(id, line, end, shown));
  }
  ::unlink(journal.path().c_str());
  LogInfo("{}: {} answered, {} failed of {}", id, batch.completed, batch.failed, batch.total);
  return absl::OkStatus();
}

// The line goes on, whether the disk takes it or not: then the next process tries the batch again.
void Batches::Fail(const std::string& id, std::vector<batch::LineError> errors, Line& line) {
  MutexLock changing(line.changing);
  BatchRecord batch = Copy(id);
  SetFailed(batch, std::move(errors), Now());
  const absl::Status status = records_.Write(id, batch.ToRecord());
  if (!status.ok()) LogError("{}: {}", id, std::string(status.message()));
  MutexLock lock(mutex_);
  metrics_.refused.Increment();
  LeaveLine(batch, line);
  batches_.at(id) = std::move(batch);
}

BatchRecord Batches::Copy(const std::string& id) const {
  MutexLock lock(mutex_);
  return batches_.at(id);
}

absl::StatusOr<BatchRecord> Batches::Change(const std::string& id, Line& /*line*/, const ChangeRecord& change,
                                            const ChangeRecord& shown) {
  BatchRecord changed = Copy(id);
  change(changed);
  MOE_RETURN_IF_ERROR(records_.Write(id, changed.ToRecord()));
  MutexLock lock(mutex_);
  BatchRecord& batch = batches_.at(id);
  change(batch);
  if (shown) shown(batch);
  return batch;
}

void Batches::LeaveLine(const BatchRecord& batch, Line& line) {
  if (std::erase(line.waiting, batch.id) > 0) metrics_.unfinished.Decrement();
}

void Batches::ForgetOld(const std::string& tenant) {
  std::vector<std::string> finished;
  {
    MutexLock lock(mutex_);
    for (const auto& [id, batch] : batches_) {
      if (batch.tenant == tenant && batch.finished()) finished.push_back(id);
    }
    finished.resize(finished.size() - std::min(finished.size(), limits_.finished));  // the oldest
    for (const std::string& id : finished) batches_.erase(id);
  }
  for (const std::string& id : finished) records_.Remove(id);
}

absl::StatusOr<BatchRecord> Batches::Create(const std::string& tenant, const std::string& input_file,
                                            const std::string& endpoint, nlohmann::ordered_json metadata,
                                            size_t requests) {
  MOE_ASSIGN_OR_RETURN(const StoredFile input, files_.Find(tenant, input_file));
  if (input.purpose != "batch") {
    return absl::InvalidArgumentError("input_file_id: has another purpose than batch");
  }
  MOE_RETURN_IF_ERROR(files_.CheckRoom(tenant));
  BatchRecord batch;
  batch.id = records_.NewName("batch_", absl::Now(), random_());
  batch.tenant = tenant;
  batch.endpoint = endpoint;
  batch.input_file = input_file;
  batch.output_file = files_.NewId();
  batch.error_file = files_.NewId();
  batch.created_at = Now();
  batch.total = requests;
  batch.metadata = std::move(metadata);
  Line& line = LineOf(tenant);
  MutexLock changing(line.changing);
  {
    MutexLock lock(mutex_);
    if (stopping_) return absl::UnavailableError("the server is shutting down");
    if (line.waiting.size() >= limits_.unfinished) {
      return absl::FailedPreconditionError(
          absl::StrCat(limits_.unfinished, " batches of this key are unfinished; wait for one, or cancel it"));
    }
    StartThread(tenant, line);  // before the batch is kept, which would wait for the key's next one
  }
  MOE_RETURN_IF_ERROR(records_.Write(batch.id, batch.ToRecord()));
  MutexLock lock(mutex_);
  batches_[batch.id] = batch;
  Enqueue(batch);
  return batch;
}

absl::StatusOr<BatchRecord> Batches::Find(const std::string& tenant, const std::string& id) const {
  MutexLock lock(mutex_);
  const auto found = batches_.find(id);
  if (found == batches_.end() || found->second.tenant != tenant) return NoBatch(id);
  return found->second;
}

absl::StatusOr<BatchRecord> Batches::Cancel(const std::string& tenant, const std::string& id) {
  Line& line = LineOf(tenant);
  MutexLock changing(line.changing);
  bool waits = false;
  {
    MutexLock lock(mutex_);
    const auto found = batches_.find(id);
    if (found == batches_.end() || found->second.tenant != tenant) return NoBatch(id);
    const BatchRecord& batch = found->second;
    if (batch.finished() || batch.status == BatchStatus::kFinalizing) {
      return absl::FailedPreconditionError(absl::StrCat("batch ", id, " has ended"));
    }
    if (batch.status == BatchStatus::kCancelling) return batch;
    waits = line.waiting.front() != id;  // and will until `changing` is free: a batch leaves the line under it
  }
  const auto cancel = [waits, now = Now()](BatchRecord& changed) {
    changed.cancelling_at = now;
    changed.status = waits ? BatchStatus::kCancelled : BatchStatus::kCancelling;
    if (waits) changed.cancelled_at = now;
  };
  const auto shown = [&](const BatchRecord& batch) {
    mutex_.AssertHeld();
    if (waits) {
      metrics_.cancelled.Increment();
      LeaveLine(batch, line);
    } else {
      changed_.notify_all();  // it may wait to know how many places there are
      if (line.run != nullptr) line.run->Stop();
    }
  };
  MOE_ASSIGN_OR_RETURN(BatchRecord batch, Change(id, line, cancel, shown));
  if (waits) ForgetOld(tenant);
  return batch;
}

absl::Status Batches::Remove(const std::string& tenant, const std::string& id) {
  MOE_ASSIGN_OR_RETURN(const BatchRecord batch, Find(tenant, id));
  if (!batch.finished()) {
    return absl::FailedPreconditionError(absl::StrCat("batch ", id, " has not ended; cancel it first"));
  }
  // The record goes last: until then the call may be repeated.
  for (const std::string& file : {batch.output_file, batch.error_file, batch.input_file}) {
    RemoveFile(tenant, file).IgnoreError();  // it may be gone, or never have been there
  }
  records_.Remove(id);
  MutexLock lock(mutex_);
  batches_.erase(id);
  return absl::OkStatus();
}

std::vector<BatchRecord> Batches::List(const std::string& tenant) const {
  std::vector<BatchRecord> batches;
  {
    MutexLock lock(mutex_);
    for (const auto& [id, batch] : batches_) {
      if (batch.tenant == tenant) batches.push_back(batch);
    }
  }
  std::ranges::reverse(batches);
  return batches;
}

absl::StatusOr<StoredFile> Batches::AddFile(const std::string& tenant, const std::string& name,
                                            std::string_view contents) {
  absl::StatusOr<StoredFile> file = files_.Add(tenant, name, contents);
  metrics_.file_bytes.Set(static_cast<double>(files_.bytes()));
  return file;
}

absl::Status Batches::RemoveFile(const std::string& tenant, const std::string& id) {
  {
    MutexLock lock(mutex_);
    for (const auto& [batch_id, batch] : batches_) {
      if (batch.input_file == id && batch.tenant == tenant && !batch.finished()) {
        return absl::FailedPreconditionError(absl::StrCat("file ", id, " is the input of ", batch_id, ", which runs"));
      }
    }
  }
  MOE_RETURN_IF_ERROR(files_.Remove(tenant, id));
  metrics_.file_bytes.Set(static_cast<double>(files_.bytes()));
  return absl::OkStatus();
}

}  // namespace moestro::router
