// One batch, as OpenAI's API shows it and as it is on disk.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "common/batch/request_file.h"

namespace moestro::router {

//                  ┌─▶ failed
//   validating ─▶ in_progress ─▶ finalizing ─▶ completed
//       └───────────────┴─▶ cancelling ─▶ cancelled
enum class BatchStatus { kValidating, kInProgress, kFinalizing, kCompleted, kFailed, kCancelling, kCancelled };

struct BatchRecord {
  std::string id;  // "batch_..."
  std::string tenant;
  std::string endpoint;
  std::string input_file;
  // Chosen when the batch is created, so that writing them again after a crash writes the same files.
  std::string output_file;
  std::string error_file;
  bool has_output = false;  // the files are there
  bool has_errors = false;
  BatchStatus status = BatchStatus::kValidating;
  // Seconds since 1970; 0: not yet.
  int64_t created_at = 0;
  int64_t in_progress_at = 0;
  int64_t finalizing_at = 0;
  int64_t completed_at = 0;
  int64_t failed_at = 0;
  int64_t cancelling_at = 0;
  int64_t cancelled_at = 0;
  // Requests.
  size_t total = 0;
  size_t completed = 0;
  size_t failed = 0;
  std::vector<batch::LineError> errors = {};  // why it failed
  nlohmann::ordered_json metadata = nullptr;

  bool finished() const {
    return status == BatchStatus::kCompleted || status == BatchStatus::kFailed || status == BatchStatus::kCancelled;
  }

  nlohmann::ordered_json ToJson() const;  // OpenAI's
  // For the disk, and back. What a record lacks is as in a new one.
  nlohmann::ordered_json ToRecord() const;
  static BatchRecord FromRecord(const nlohmann::ordered_json& record);
};

}  // namespace moestro::router
