#include "common/batch/request_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <unordered_map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "common/base/status.h"
#include "common/batch/checksum.h"
#include "common/batch/file_io.h"
#include "common/batch/line_reader.h"
#include "common/text/json/json.h"
#include "common/text/json/quoted.h"
#include "common/text/json/raw_field.h"
#include "common/text/json/surrogates.h"

namespace moestro::batch {
namespace {

// Eight times the ids of the longest contexts; each takes some 50 bytes while a line is parsed.
constexpr size_t kMaxValues = size_t{1} << 20;

constexpr std::array<const char*, 4> kUrls = {"/v1/chat/completions", "/v1/completions", "/v1/responses",
                                              "/v1/messages"};

bool Wrong(LineError& error, const char* code, const char* param, std::string message) {
  error.code = code;
  error.param = param;
  error.message = std::move(message);
  return false;
}

// The text of a field that every line must have.
const std::string* Text(const nlohmann::json& object, const char* key) {
  const auto found = object.find(key);
  return found == object.end() ? nullptr : found->get_ptr<const std::string*>();
}

bool ParseFields(std::string_view line, const nlohmann::json& object, Request& request, LineError& error) {
  for (const char* key : {"custom_id", "method", "url", "body"}) {
    if (!object.contains(key)) {
      return Wrong(error, "missing_required_parameter", key, absl::StrCat("has no ", key));
    }
  }
  const std::string* const id = Text(object, "custom_id");
  if (id == nullptr || id->empty() || id->size() > kMaxCustomIdBytes) {
    return Wrong(error, "invalid_custom_id", "custom_id",
                 absl::StrCat("custom_id: must be a text of 1 to ", kMaxCustomIdBytes, " bytes"));
  }
  const std::string* const method = Text(object, "method");
  if (method == nullptr || *method != "POST") {
    return Wrong(error, "invalid_method", "method", "method: must be \"POST\"");
  }
  const std::string* const url = Text(object, "url");
  if (url == nullptr || !IsEndpoint(*url)) {
    return Wrong(error, "invalid_url", "url", absl::StrCat("url: must be one of ", absl::StrJoin(kUrls, ", ")));
  }
  const nlohmann::json& body = object["body"];
  if (!body.is_object()) return Wrong(error, "invalid_request", "body", "body: must be an object");
  if (const auto stream = body.find("stream"); stream != body.end() && *stream != false && !stream->is_null()) {
    return Wrong(error, "invalid_request", "body.stream", "body.stream: a batch has whole answers only; leave it out");
  }
  const std::string_view raw = text::RawField(line, "body");
  if (raw.empty()) return Wrong(error, "invalid_request", "body", "body: write this key without escapes");
  request = {.custom_id = *id, .url = *url, .body = std::string(raw)};
  return true;
}

std::string ReasonOf(int error_number) { return std::strerror(error_number); }

// The message of an error of a whole file.
std::string Summary(const std::string& path, const RequestFile::Problems& problems) {
  std::string message = absl::StrCat(path, ": ", problems.all, problems.all == 1 ? " line is" : " lines are", " wrong");
  for (const LineError& error : problems.errors)
    absl::StrAppend(&message, "\n  line ", error.line, ": ", error.message);
  if (problems.all > problems.errors.size()) absl::StrAppend(&message, "\n  and more");
  return message;
}

}  // namespace

bool IsEndpoint(std::string_view url) { return std::ranges::find(kUrls, url) != kUrls.end(); }

bool ParseRequest(std::string_view line, Request& request, LineError& error) {
  std::string repaired(line);
  text::ReplaceLoneSurrogates(repaired);
  const auto object = text::ParseJsonObject(repaired, "", kMaxValues);
  if (!object.ok()) {
    return Wrong(error, "invalid_json_line", "", std::string(absl::StripPrefix(object.status().message(), ": ")));
  }
  return ParseFields(repaired, *object, request, error);
}

absl::StatusOr<std::unique_ptr<RequestFile>> RequestFile::Open(const std::string& path, const RequestRules& rules,
                                                               Problems& problems) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return absl::NotFoundError(absl::StrCat(path, ": ", ReasonOf(errno)));
  std::unique_ptr<RequestFile> file(new RequestFile(path, descriptor));
  std::unordered_map<std::string, size_t> lines_of;  // by custom_id
  const auto wrong = [&](LineError error, size_t line) {
    error.line = line;
    if (problems.all++ < kMaxErrors) problems.errors.push_back(std::move(error));
  };
  LineReader reader(descriptor, kMaxLineBytes);
  FileIdentity& identity = file->identity_;
  size_t number = 0;
  while (const auto line = reader.Next()) {
    ++number;
    identity.checksum = Checksum(*line, identity.checksum);
    if (line->find_first_not_of(" \t\r") == std::string_view::npos) continue;
    Request request;
    LineError error;
    if (line->size() > kMaxLineBytes) {
      Wrong(error, "invalid_request", "", absl::StrCat("has more than ", kMaxLineBytes, " bytes"));
    } else if (ParseRequest(*line, request, error)) {
      const auto [found, is_new] = lines_of.try_emplace(request.custom_id, number);
      if (!is_new) {
        Wrong(
            error, "duplicate_custom_id", "custom_id",
            absl::StrCat("custom_id: ", text::Quoted(request.custom_id), " is that of line ", found->second, ", too"));
      } else if (!rules.url.empty() && request.url != rules.url) {
        Wrong(error, "mismatched_endpoint", "url", absl::StrCat("url: must be that of the batch, ", rules.url));
      } else if (lines_of.size() > rules.most_requests) {
        Wrong(error, "too_many_tasks", "", absl::StrCat("is one of more than ", rules.most_requests, " requests"));
      }
    }
    if (!error.code.empty()) {
      wrong(std::move(error), number);
      if (lines_of.size() > rules.most_requests) break;
    } else if (problems.all == 0) {
      file->lines_.push_back({.offset = reader.offset(), .bytes = line->size(), .checksum = Checksum(*line)});
    }
  }
  if (reader.error() != 0) return absl::NotFoundError(absl::StrCat(path, ": ", ReasonOf(reader.error())));
  if (problems.all > 0) return absl::InvalidArgumentError(Summary(path, problems));
  if (file->lines_.empty()) return absl::InvalidArgumentError(absl::StrCat(path, ": has no request"));
  identity.bytes = reader.offset();
  identity.requests = file->lines_.size();
  return file;
}

RequestFile::~RequestFile() { ::close(descriptor_); }

absl::StatusOr<Request> RequestFile::Read(size_t index) const {
  const Line& line = lines_[index];
  std::string text(line.bytes, '\0');
  Request request;
  LineError error;
  if (ReadAt(descriptor_, line.offset, text) != 0 || Checksum(text) != line.checksum ||
      !ParseRequest(text, request, error)) {
    return absl::DataLossError(absl::StrCat(path_, ": changed while the batch runs; restore it, and run it again"));
  }
  return request;
}

}  // namespace moestro::batch
