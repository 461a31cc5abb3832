// The results of a batch as they come, in a file beside the output. With it a batch goes on where it was killed.
//
//   moestro-batch-journal 1 {"bytes":..,"checksum":..,"requests":..,"input":".."}\n     which file it belongs to
//   CHECKSUM INDEX ok|failed TOKENS {"id":..}\n                                          one result, any order
//   CHECKSUM INDEX begun|left|begun-alone|left-alone\n                                   optional: it is under way
//
// CHECKSUM is that of the rest of the line (checksum.h), in 16 hexadecimal digits. A line that does not fit its
// checksum, such as one that a killed process left half written, is no result: its request is computed again.
//
// Each result is one write, so it survives the end of the process at once. The disk gets it within a second, by
// fdatasync: a power failure costs what was computed since then, and it is computed again.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/mutex.h"
#include "common/batch/request_file.h"

namespace moestro::batch {

struct Result {
  bool ok = true;                 // the request was answered; else the line says why not
  uint64_t generated_tokens = 0;  // of the answer
  std::string line = {};          // of the output: JSON without a line break
};

// Thread-safe. It holds 16 bytes a request; results are in the file.
class Journal {
 public:
  // Opens the journal of `file` at `path`, or creates it. FAILED_PRECONDITION: another process has it;
  // INVALID_ARGUMENT: it belongs to a file with other contents; DATA_LOSS: its first line is damaged; NOT_FOUND: it
  // cannot be opened. Each names the file and the remedy.
  static absl::StatusOr<std::unique_ptr<Journal>> Open(const std::string& path, const RequestFile& file);
  ~Journal();
  Journal(const Journal&) = delete;
  Journal& operator=(const Journal&) = delete;

  struct Counts {
    size_t done = 0;  // failed ones included
    size_t failed = 0;
    uint64_t generated_tokens = 0;
  };
  Counts counts() const;
  // Lines that were no results when the journal was opened.
  size_t damaged() const { return damaged_; }
  const std::string& path() const { return path_; }

  bool Has(size_t index) const;
  // Whether the request was answered. REQUIRES: Has(index).
  bool Succeeded(size_t index) const;
  // Notes that the request is under way, `alone` or beside others, and that it is no more. Errors as of Append.
  absl::Status Begin(size_t index, bool alone);
  absl::Status Leave(size_t index, bool alone);
  // How often a process ended while the request was under way, before this one opened the journal. Of a request that
  // has its result: never.
  struct Deaths {
    uint8_t beside_others = 0;
    uint8_t alone = 0;
  };
  Deaths DeathsOf(size_t index) const;
  // The requests that were under way when a process ended, in their order.
  std::vector<size_t> Suspects() const;
  // RESOURCE_EXHAUSTED names the file and why it cannot be written; then it is as before. REQUIRES: !Has(index).
  absl::Status Append(size_t index, const Result& result);
  // The line of the output. DATA_LOSS: the file has changed. REQUIRES: Has(index).
  absl::StatusOr<std::string> Read(size_t index) const;
  // Waits until the disk has everything.
  absl::Status Sync();

 private:
  struct Entry {          // of a request
    uint64_t offset = 0;  // of the record in the file; 0: none
    uint32_t bytes = 0;   // of the record
    bool ok = false;
    Deaths deaths = {};
  };
  Journal(std::string path, int descriptor, size_t requests)
      : path_(std::move(path)), descriptor_(descriptor), entries_(requests) {}
  absl::Status ReadTitle(const RequestFile& file);
  absl::Status Recover();
  absl::Status Mark(size_t index, std::string_view word);
  absl::Status Write(std::string_view text) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Note(size_t index, Entry entry, uint64_t tokens) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status CannotWrite(int error_number) const;

  const std::string path_;
  const int descriptor_;
  size_t damaged_ = 0;
  mutable Mutex mutex_;
  std::vector<Entry> entries_ ABSL_GUARDED_BY(mutex_);
  Counts counts_ ABSL_GUARDED_BY(mutex_);
  uint64_t end_ ABSL_GUARDED_BY(mutex_) = 0;  // of the file
  std::chrono::steady_clock::time_point synced_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace moestro::batch
