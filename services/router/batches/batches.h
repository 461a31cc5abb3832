// The batches of all tenants: a line for each tenant, whose first batch runs. They survive the process: the next one on
// the same folder goes on with what their journals (common/batch/journal.h) do not have.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/mutex.h"
#include "common/batch/batch_run.h"
#include "services/router/batches/batch_metrics.h"
#include "services/router/batches/batch_record.h"
#include "services/router/batches/file_store.h"
#include "services/router/batches/record_folder.h"

namespace moestro::router {

// Of each tenant.
struct BatchLimits {
  size_t unfinished = 64;    // batches
  size_t finished = 1000;    // that are remembered; older ones are forgotten, and their files stay
  size_t requests = 50'000;  // of a batch: OpenAI's bound
  int in_flight = 0;         // requests at once; 0: SetPlaces says
};

// Thread-safe.
class Batches {
 public:
  // What runs a tenant's requests. Called on the tenant's thread.
  using MakeExecutor = std::function<std::unique_ptr<batch::Executor>(const std::string& tenant)>;

  // In `folder`: files/ and batches/. All arguments must outlive this.
  Batches(std::string folder, const BatchLimits& limits, FileStore& files, BatchMetrics& metrics,
          MakeExecutor make_executor, FileStore::Random random);
  ~Batches();  // Stop

  // Reads what an earlier process has left, files included, and goes on with it. Call it once, before any request.
  // FAILED_PRECONDITION: another router has the folder. The errors of RecordFolder.
  absl::Status Start();
  // Ends what runs; the next process goes on. Call it before what executors use goes.
  void Stop();

  // FAILED_PRECONDITION: as many as the tenant may have are unfinished, or its files are as many as may be. NOT_FOUND:
  // no such file. `requests`: how many the file has; 0: that is known when its turn comes.
  absl::StatusOr<BatchRecord> Create(const std::string& tenant, const std::string& input_file,
                                     const std::string& endpoint, nlohmann::ordered_json metadata, size_t requests = 0);
  // NOT_FOUND: the tenant has no such batch. FAILED_PRECONDITION: it has ended.
  absl::StatusOr<BatchRecord> Find(const std::string& tenant, const std::string& id) const;
  absl::StatusOr<BatchRecord> Cancel(const std::string& tenant, const std::string& id);
  // Forgets a batch, and deletes its files that no other one reads. NOT_FOUND. FAILED_PRECONDITION: it has not ended.
  absl::Status Remove(const std::string& tenant, const std::string& id);
  std::vector<BatchRecord> List(const std::string& tenant) const;  // newest first

  // How many requests of a batch may be in work at once, for batches that begin from now on. The first waits for this
  // unless the limits have a number.
  void SetPlaces(int places);

  // FileStore::Add.
  absl::StatusOr<StoredFile> AddFile(const std::string& tenant, const std::string& name, std::string_view contents);
  // Deletes a file. FAILED_PRECONDITION: an unfinished batch needs it. NOT_FOUND.
  absl::Status RemoveFile(const std::string& tenant, const std::string& id);
  FileStore& files() { return files_; }
  const BatchLimits& limits() const { return limits_; }

 private:
  struct Line {                       // of a tenant
    Mutex changing;                   // held while a batch changes, on disk and here; locked before mutex_
    std::deque<std::string> waiting;  // ids; the first one runs
    batch::BatchRun* run = nullptr;
    std::thread thread;
  };

  Line& LineOf(const std::string& tenant);
  void StartThread(const std::string& tenant, Line& line) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Enqueue(const BatchRecord& batch) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void RunLine(const std::string& tenant, Line& line);
  void RunFirst(const std::string& id, Line& line);
  absl::Status RunOne(const std::string& id, Line& line);
  // Waits until it is known, or `id` need not run.
  int InFlight(const std::string& id);
  absl::Status Answer(const std::string& id, const batch::RequestFile& file, batch::Journal& journal, Line& line);
  absl::Status Finish(const std::string& id, const batch::RequestFile& file, const batch::Journal& journal,
                      const absl::Status& answered, Line& line);
  void NoteProgress(const std::string& id, const batch::Progress& progress);
  void CountOpenRequests() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Fail(const std::string& id, std::vector<batch::LineError> errors, Line& line);
  BatchRecord Copy(const std::string& id) const;
  // Changes a batch, on disk and then here, with what `shown` does at the same moment. If the disk refuses it, nothing
  // has changed. Only NoteProgress changes a batch meanwhile.
  using ChangeRecord = std::function<void(BatchRecord&)>;
  absl::StatusOr<BatchRecord> Change(const std::string& id, Line& line, const ChangeRecord& change,
                                     const ChangeRecord& shown = nullptr) ABSL_EXCLUSIVE_LOCKS_REQUIRED(line.changing);
  // Of a batch that has ended.
  void LeaveLine(const BatchRecord& batch, Line& line) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ForgetOld(const std::string& tenant);

  const std::string folder_;
  const BatchLimits limits_;
  FileStore& files_;
  BatchMetrics& metrics_;
  const MakeExecutor make_executor_;
  const FileStore::Random random_;
  int lock_ = -1;         // of the folder
  RecordFolder records_;  // whose data are the journals
  Mutex alone_;           // RunOptions::alone
  mutable Mutex mutex_;
  Condition changed_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  int places_ ABSL_GUARDED_BY(mutex_) = 0;                              // 0: not known
  std::map<std::string, BatchRecord> batches_ ABSL_GUARDED_BY(mutex_);  // by id, so the oldest first
  std::map<std::string, Line> lines_ ABSL_GUARDED_BY(mutex_);           // by tenant; a line stays where it is
};

}  // namespace moestro::router
