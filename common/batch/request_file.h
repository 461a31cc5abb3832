// A file of requests in OpenAI's batch format: one JSON object a line, with custom_id, method, url and body.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace moestro::batch {

// As much as the router takes in one request.
inline constexpr size_t kMaxLineBytes = size_t{16} << 20;
inline constexpr size_t kMaxCustomIdBytes = 512;

// Whether a batch may ask for it: "/v1/chat/completions", "/v1/completions", "/v1/responses" or "/v1/messages".
bool IsEndpoint(std::string_view url);

struct Request {
  std::string custom_id = {};  // the client's name for the line, unique in its file
  std::string url = {};        // "/v1/chat/completions"
  std::string body = {};  // a JSON object, as it was written: what a parser makes of it has lost the order of its keys
};

// What is wrong with a line, in the words of OpenAI's batches.
struct LineError {
  size_t line = 0;  // in the file, from 1
  std::string code;
  std::string param;  // the field; empty: the line as a whole
  std::string message;
};

// Reads one line. False: `error` says what is wrong with it, without the line's number.
bool ParseRequest(std::string_view line, Request& request, LineError& error);

// Of a file's contents; a journal knows its file by it.
struct FileIdentity {
  uint64_t bytes = 0;
  uint64_t checksum = 0;
  uint64_t requests = 0;
  bool operator==(const FileIdentity&) const = default;
};

// What a file may have.
struct RequestRules {
  std::string url = {};             // what every line must ask for; empty: any of the endpoints
  size_t most_requests = SIZE_MAX;  // of the file
};

// The requests of a file that was checked as a whole. It holds 24 bytes a line; lines are read when they are needed.
// Thread-safe.
class RequestFile {
 public:
  // More errors than this are counted only.
  static constexpr size_t kMaxErrors = 20;
  struct Problems {
    std::vector<LineError> errors;  // the first ones
    size_t all = 0;
  };

  // Reads and checks the file. Lines of white space do not count. NOT_FOUND: the file cannot be read; INVALID_ARGUMENT:
  // it has no request, or lines are wrong, of which `problems` has the first ones and the message all of these.
  static absl::StatusOr<std::unique_ptr<RequestFile>> Open(const std::string& path, const RequestRules& rules,
                                                           Problems& problems);
  ~RequestFile();
  RequestFile(const RequestFile&) = delete;
  RequestFile& operator=(const RequestFile&) = delete;

  size_t size() const { return lines_.size(); }
  const std::string& path() const { return path_; }
  const FileIdentity& identity() const { return identity_; }

  // The request `index`, in the order of the file. DATA_LOSS: the file has changed since Open.
  absl::StatusOr<Request> Read(size_t index) const;

 private:
  struct Line {
    uint64_t offset;
    uint64_t bytes;
    uint64_t checksum;
  };
  RequestFile(std::string path, int descriptor) : path_(std::move(path)), descriptor_(descriptor) {}

  const std::string path_;
  const int descriptor_;
  FileIdentity identity_;
  std::vector<Line> lines_;
};

}  // namespace moestro::batch
