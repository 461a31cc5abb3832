// Small JSON records on disk, each in a file of its own that is replaced as a whole, and each with a file of data.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/time/time.h"

namespace moestro::router {

// Thread-safe for different names, but for ReadAll.
class RecordFolder {
 public:
  // `data`: what the name of a record's data has behind the record's: ".jsonl".
  RecordFolder(std::string path, std::string data) : path_(std::move(path)), data_(std::move(data)) {}

  // Makes the folder if there is none, and passes every *.json of it on, with the name before that, in order of the
  // names. One that is no JSON object, or of which `take` makes an error or an exception, is renamed to *.damaged, and
  // the log says so: what one user lost must not stop the others. Then removes what a killed process has left: data of
  // no record, and *.partial. Call it once, before all else, and when no other process works on the folder. NOT_FOUND:
  // the folder cannot be made or read.
  absl::Status ReadAll(
      absl::FunctionRef<absl::Status(const std::string& name, const nlohmann::ordered_json& record)> take);

  // PREFIX and 32 digits: a name that sorts behind those of all records and all new names before it, whatever the clock
  // has done since. `random` makes 64 bits of it that nobody can guess.
  std::string NewName(const std::string& prefix, absl::Time now, uint64_t random);

  // On disk when it returns. RESOURCE_EXHAUSTED names the file and why it cannot be written.
  absl::Status Write(const std::string& name, const nlohmann::ordered_json& record);
  absl::Status WriteData(const std::string& name, std::string_view contents);
  // The record and its data.
  void Remove(const std::string& name);

  std::string DataOf(const std::string& name) const { return path_ + "/" + name + data_; }

 private:
  std::string FileOf(const std::string& name) const { return path_ + "/" + name + ".json"; }
  // Whether it is what a killed process has left.
  bool IsLeft(const std::filesystem::path& path) const;

  const std::string path_;
  const std::string data_;
  std::atomic<uint64_t> latest_{0};  // the time in the name that sorts last
};

}  // namespace moestro::router
