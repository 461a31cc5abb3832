#include "services/router/http/models.h"

#include "absl/time/time.h"
#include "common/base/status.h"
#include "common/process/node_options.h"
#include "services/router/http/frames.h"

namespace moestro::router {
namespace {

// With the fields of both APIs.
OrderedJson ModelCard(const ServedModel& model) {
  const absl::Time created = absl::FromUnixSeconds(model.created_seconds);
  return {{"id", model.name},
          {"object", "model"},
          {"type", "model"},
          {"display_name", model.name},
          {"created", model.created_seconds},
          {"created_at", absl::FormatTime(absl::RFC3339_sec, created, absl::UTCTimeZone())},
          {"owned_by", "moestro"},
          {"root", model.name},
          {"parent", nullptr},
          {"max_model_len", model.max_context_tokens},
          {"max_input_tokens", model.max_context_tokens},
          {"family", model.family},
          {"fingerprint", model.fingerprint}};
}

}  // namespace

absl::Status HandleModels(const HttpApi& api, Response& response) {
  MOE_ASSIGN_OR_RETURN(const ModelBoard::ModelPtr model, api.board.Described());
  return response.SendJson(200, Dump({{"object", "list"},
                                      {"data", OrderedJson::array({ModelCard(*model)})},
                                      {"has_more", false},
                                      {"first_id", model->name},
                                      {"last_id", model->name}}));
}

absl::Status HandleModel(const HttpApi& api, const HttpRequest& request, Response& response) {
  MOE_ASSIGN_OR_RETURN(const ModelBoard::ModelPtr model, api.board.Described());
  MOE_RETURN_IF_ERROR(CheckModelName(request.head.path.substr(std::string("/v1/models/").size()), *model));
  return response.SendJson(200, Dump(ModelCard(*model)));
}

absl::Status HandleHealth(const HttpApi& api, Response& response) {
  const ModelBoard::Load load = api.board.load();
  if (!load.ready) {
    return response.SendJson(503, Dump({{"status", "loading model"},
                                        {"progress", load.progress},
                                        {"error", {{"code", 503}, {"message", load.waiting_for}}}}));
  }
  if (const absl::Status ready = api.ready(); !ready.ok()) {
    const std::string reason(ready.message());
    return response.SendJson(503, Dump({{"status", "not serving"}, {"error", {{"code", 503}, {"message", reason}}}}));
  }
  return response.SendJson(200, Dump({{"status", "ok"}}));
}

absl::Status HandleVersion(Response& response) { return response.SendJson(200, Dump({{"version", ProgramVersion()}})); }

}  // namespace moestro::router
