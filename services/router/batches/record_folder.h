// Small JSON records on disk, each in a file of its own that is replaced as a whole.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace moestro::router {

// PREFIX and 32 digits: an id that sorts by the time at which it was made, and of which `random` makes 64 bits that
// nobody can guess.
std::string NewRecordId(const std::string& prefix, uint64_t random);

// Not thread-safe.
class RecordFolder {
 public:
  explicit RecordFolder(std::string path) : path_(std::move(path)) {}

  const std::string& path() const { return path_; }

  // Makes the folder if there is none, and passes every *.json of it on, with the name before that, in order of the
  // names. One that is no JSON object, or of which `take` makes an error or an exception, is renamed to *.damaged, and
  // the log says so: what one user lost must not stop the others. NOT_FOUND: the folder cannot be made or read.
  absl::Status ReadAll(
      absl::FunctionRef<absl::Status(const std::string& name, const nlohmann::ordered_json& record)> take);
  // On disk when it returns. RESOURCE_EXHAUSTED names the file and why it cannot be written.
  absl::Status Write(const std::string& name, const nlohmann::ordered_json& record);
  void Remove(const std::string& name);

 private:
  std::string FileOf(const std::string& name) const { return path_ + "/" + name + ".json"; }

  const std::string path_;
};

}  // namespace moestro::router
