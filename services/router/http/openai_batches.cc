#include "services/router/http/openai_batches.h"

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/text/json/json.h"
#include "services/router/batches/batches.h"
#include "services/router/http/frames.h"
#include "services/router/http/openai_files.h"
#include "services/router/http/pages.h"

namespace moestro::router {
namespace {

constexpr std::string_view kBatchPath = "/v1/batches/";
constexpr size_t kBatchesOfAPage = 20;
constexpr size_t kMostBatchesOfAPage = 100;
// OpenAI's bounds of metadata.
constexpr size_t kMostMetadata = 16;
constexpr size_t kMaxMetadataKey = 64;
constexpr size_t kMaxMetadataValue = 512;

absl::StatusOr<OrderedJson> ReadMetadata(std::string_view body) {
  MOE_ASSIGN_OR_RETURN(const OrderedJson json, text::ParseOrderedJsonObject(body, ""));
  const OrderedJson metadata = json.value("metadata", OrderedJson());
  if (metadata.is_null()) return metadata;
  const auto is_text = [](const OrderedJson& value) {
    return value.is_string() && value.get_ref<const std::string&>().size() <= kMaxMetadataValue;
  };
  bool fits = metadata.is_object() && metadata.size() <= kMostMetadata && std::ranges::all_of(metadata, is_text);
  for (auto field = metadata.begin(); fits && field != metadata.end(); ++field) {
    fits = field.key().size() <= kMaxMetadataKey;
  }
  if (fits) return metadata;
  return absl::InvalidArgumentError(absl::StrCat("metadata: must be an object of up to ", kMostMetadata,
                                                 " texts, of up to ", kMaxMetadataKey, " bytes in a key and ",
                                                 kMaxMetadataValue, " in a value"));
}

}  // namespace

absl::Status HandleCreateBatch(const HttpApi& api, const HttpRequest& request, Response& response) {
  MOE_ASSIGN_OR_RETURN(Batches* const batches, BatchesOf(api));
  const std::string& body = request.body.text;
  constexpr size_t kMaxBody = size_t{64} << 10;  // an id, an endpoint and metadata
  if (body.size() > kMaxBody) return absl::InvalidArgumentError("the body has more than 64 KiB");
  MOE_ASSIGN_OR_RETURN(const nlohmann::json json, text::ParseJsonObject(body, ""));
  absl::Status status;
  text::JsonFields fields(json, "", &status);
  const std::string input = fields.StringOr("input_file_id", "");
  if (input.empty()) fields.Fail("input_file_id", "is missing: the id of a file of purpose batch");
  const std::string endpoint = fields.StringOr("endpoint", "");
  if (!batch::IsEndpoint(endpoint)) {
    fields.Fail("endpoint", "must be /v1/chat/completions, /v1/completions, /v1/responses or /v1/messages");
  }
  if (fields.StringOr("completion_window", "24h") != "24h") {
    fields.Fail("completion_window", "must be 24h; a batch runs until it is done, however long that takes");
  }
  if (fields.Has("output_expires_after")) {
    fields.Unsupported("output_expires_after", "files stay until they are deleted; leave it out");
  }
  MOE_RETURN_IF_ERROR(status);
  MOE_ASSIGN_OR_RETURN(OrderedJson metadata, ReadMetadata(body));
  MOE_ASSIGN_OR_RETURN(const BatchRecord batch,
                       batches->Create(response.tenant_name(), input, endpoint, std::move(metadata)));
  return response.SendJson(200, Dump(batch.ToJson()));
}

absl::Status HandleListBatches(const HttpApi& api, const HttpRequest& request, Response& response) {
  MOE_ASSIGN_OR_RETURN(Batches* const batches, BatchesOf(api));
  MOE_ASSIGN_OR_RETURN(const PageQuery query, ParsePageQuery(request.head.query, kBatchesOfAPage, kMostBatchesOfAPage));
  std::vector<OrderedJson> objects;
  for (const BatchRecord& batch : batches->List(response.tenant_name())) objects.push_back(batch.ToJson());
  return response.SendJson(200, Dump(Page(std::move(objects), query)));
}

absl::Status HandleBatch(const HttpApi& api, const HttpRequest& request, Response& response) {
  MOE_ASSIGN_OR_RETURN(Batches* const batches, BatchesOf(api));
  MOE_ASSIGN_OR_RETURN(const BatchRecord batch,
                       batches->Find(response.tenant_name(), request.head.path.substr(kBatchPath.size())));
  return response.SendJson(200, Dump(batch.ToJson()));
}

absl::Status HandleCancelBatch(const HttpApi& api, const HttpRequest& request, Response& response) {
  MOE_ASSIGN_OR_RETURN(Batches* const batches, BatchesOf(api));
  constexpr std::string_view kCancel = "/cancel";
  std::string id = request.head.path.substr(kBatchPath.size());
  if (!id.ends_with(kCancel)) return absl::NotFoundError("there is POST /v1/batches/{id}/cancel only");
  id.resize(id.size() - kCancel.size());
  MOE_ASSIGN_OR_RETURN(const BatchRecord batch, batches->Cancel(response.tenant_name(), id));
  return response.SendJson(200, Dump(batch.ToJson()));
}

}  // namespace moestro::router
