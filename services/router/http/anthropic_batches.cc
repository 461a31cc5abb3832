#include "services/router/http/anthropic_batches.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/batch/line_reader.h"
#include "common/text/json/quoted.h"
#include "services/router/batches/batches.h"
#include "services/router/http/downloads.h"
#include "services/router/http/frames.h"
#include "services/router/http/message_batch.h"
#include "services/router/http/openai_files.h"
#include "services/router/http/pages.h"

namespace moestro::router {
namespace {

constexpr std::string_view kPath = "/v1/messages/batches/";
constexpr size_t kBatchesOfAPage = 20;
constexpr size_t kMostBatchesOfAPage = 1000;
constexpr size_t kPieceBytes = size_t{1} << 20;
constexpr size_t kMaxResultBytes = size_t{1} << 30;

// The id in the path, without `end`.
std::string IdOf(const HttpRequest& request, std::string_view end = {}) {
  std::string id = request.head.path.substr(kPath.size());
  id.resize(id.size() - end.size());
  return id;
}

absl::StatusOr<BatchRecord> FindMessageBatch(const Batches& batches, const std::string& tenant, const std::string& id) {
  absl::StatusOr<BatchRecord> batch = batches.Find(tenant, BatchIdOf(id));
  if (batch.ok() && batch->endpoint == kMessagesUrl && MessageBatchId(batch->id) == id) return batch;
  return absl::NotFoundError(absl::StrCat("there is no message batch ", text::Quoted(id)));
}

absl::Status SendBatch(const BatchRecord& batch, Response& response) {
  return response.SendJson(200, Dump(MessageBatchJson(batch)));
}

// A file's lines, one by one.
class Lines {
 public:
  explicit Lines(const std::string& path)
      : descriptor_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)), error_(descriptor_ < 0 ? errno : 0) {}
  Lines(const Lines&) = delete;
  Lines& operator=(const Lines&) = delete;
  ~Lines() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }

  absl::Status ForEach(absl::FunctionRef<absl::Status(std::string_view)> take) {
    batch::LineReader reader(descriptor_, kMaxResultBytes);
    while (error_ == 0) {
      const auto line = reader.Next();
      if (!line) break;
      MOE_RETURN_IF_ERROR(take(*line));
    }
    if (error_ == 0) error_ = reader.error();
    return status();
  }
  absl::Status status() const {
    return error_ == 0
               ? absl::OkStatus()
               : absl::InternalError(absl::StrCat("a file of the batch cannot be read: ", std::strerror(error_)));
  }

 private:
  const int descriptor_;
  int error_;
};

// Lines of results, in pieces that the client takes one after the other.
class ResultSender {
 public:
  explicit ResultSender(Response& response) : response_(response) {}

  absl::Status Add(std::string_view line) {
    (piece_ += line) += '\n';
    return piece_.size() < kPieceBytes ? absl::OkStatus() : Flush();
  }
  absl::Status Flush() {
    if (piece_.empty()) return absl::OkStatus();
    MOE_RETURN_IF_ERROR(response_.Write(std::exchange(piece_, {})));
    return response_.WaitUntilTaken();
  }

 private:
  Response& response_;
  std::string piece_;
};

absl::Status SendResults(Batches& batches, const BatchRecord& batch, Response& response) {
  if (!batch.finished()) return absl::FailedPreconditionError("the batch has no results until it has ended");
  std::vector<std::string> files;
  if (batch.has_output) files.push_back(batch.output_file);
  if (batch.has_errors) files.push_back(batch.error_file);
  const bool all_answered = batch.completed + batch.failed == batch.total;
  for (const std::string& id : files) MOE_RETURN_IF_ERROR(batches.files().Find(batch.tenant, id).status());
  if (!all_answered) MOE_RETURN_IF_ERROR(batches.files().Find(batch.tenant, batch.input_file).status());
  MOE_RETURN_IF_ERROR(response.Begin({{"Content-Type", "application/x-jsonl"}}));
  ResultSender sender(response);
  std::unordered_set<std::string> answered;
  for (const std::string& id : files) {
    MOE_RETURN_IF_ERROR(Lines(batches.files().PathOf(id)).ForEach([&](std::string_view line) {
      const std::string result = MessageResult(line);
      if (!all_answered) answered.insert(CustomIdOf(result));
      return sender.Add(result);
    }));
  }
  if (!all_answered) {
    MOE_RETURN_IF_ERROR(Lines(batches.files().PathOf(batch.input_file)).ForEach([&](std::string_view line) {
      const std::string id = CustomIdOf(line);
      return id.empty() || answered.contains(id) ? absl::OkStatus() : sender.Add(MessageResultWithout(batch, id));
    }));
  }
  return sender.Flush();
}

}  // namespace

absl::Status HandleCreateMessageBatch(const HttpApi& api, const HttpRequest& request, Response& response) {
  MOE_ASSIGN_OR_RETURN(Batches* const batches, BatchesOf(api));
  MOE_ASSIGN_OR_RETURN(const MessageRequests requests,
                       ReadMessageRequests(request.body.text, batches->limits().requests));
  const std::string tenant = response.tenant_name();
  MOE_ASSIGN_OR_RETURN(const StoredFile file, batches->AddFile(tenant, "message_batch.jsonl", requests.file));
  const absl::StatusOr<BatchRecord> batch = batches->Create(tenant, file.id, kMessagesUrl, nullptr, requests.count);
  if (!batch.ok()) batches->RemoveFile(tenant, file.id).IgnoreError();
  MOE_RETURN_IF_ERROR(batch.status());
  return SendBatch(*batch, response);
}

absl::Status HandleListMessageBatches(const HttpApi& api, const HttpRequest& request, Response& response) {
  MOE_ASSIGN_OR_RETURN(Batches* const batches, BatchesOf(api));
  MOE_ASSIGN_OR_RETURN(const PageQuery query, ParsePageQuery(request.head.query, kBatchesOfAPage, kMostBatchesOfAPage));
  std::vector<OrderedJson> objects;
  for (const BatchRecord& batch : batches->List(response.tenant_name())) {
    if (batch.endpoint == kMessagesUrl) objects.push_back(MessageBatchJson(batch));
  }
  return response.SendJson(200, Dump(Page(std::move(objects), query)));
}

absl::Status HandleMessageBatch(const HttpApi& api, const HttpRequest& request, Response& response) {
  MOE_ASSIGN_OR_RETURN(Batches* const batches, BatchesOf(api));
  constexpr std::string_view kResults = "/results";
  const std::string tenant = response.tenant_name();
  const bool results = request.head.path.ends_with(kResults);
  const std::string id = IdOf(request, results ? kResults : "");
  MOE_ASSIGN_OR_RETURN(const BatchRecord batch, FindMessageBatch(*batches, tenant, id));
  if (!results) return SendBatch(batch, response);
  MOE_RETURN_IF_ERROR(api.downloads->Begin(tenant));
  const absl::Cleanup end = [&] { api.downloads->End(tenant); };
  return SendResults(*batches, batch, response);
}

absl::Status HandleCancelMessageBatch(const HttpApi& api, const HttpRequest& request, Response& response) {
  MOE_ASSIGN_OR_RETURN(Batches* const batches, BatchesOf(api));
  constexpr std::string_view kCancel = "/cancel";
  if (!request.head.path.ends_with(kCancel)) {
    return absl::NotFoundError("there is POST /v1/messages/batches/{id}/cancel only");
  }
  MOE_ASSIGN_OR_RETURN(BatchRecord batch, FindMessageBatch(*batches, response.tenant_name(), IdOf(request, kCancel)));
  MOE_ASSIGN_OR_RETURN(batch, batches->Cancel(response.tenant_name(), batch.id));
  return SendBatch(batch, response);
}

absl::Status HandleDeleteMessageBatch(const HttpApi& api, const HttpRequest& request, Response& response) {
  MOE_ASSIGN_OR_RETURN(Batches* const batches, BatchesOf(api));
  const std::string id = IdOf(request);
  MOE_ASSIGN_OR_RETURN(const BatchRecord batch, FindMessageBatch(*batches, response.tenant_name(), id));
  MOE_RETURN_IF_ERROR(batches->Remove(response.tenant_name(), batch.id));
  return response.SendJson(200, Dump({{"id", id}, {"type", "message_batch_deleted"}}));
}

}  // namespace moestro::router
