#include "services/router/http/models.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "common/base/status.h"
#include "common/process/node_options.h"
#include "services/router/http/frames.h"

namespace moestro::router {
namespace {

// With the fields of both APIs. `name`: the model's own, or an alias.
OrderedJson ModelCard(const ServedModel& model, const std::string& name) {
  const absl::Time created = absl::FromUnixSeconds(model.created_seconds);
  return {{"id", name},
          {"object", "model"},
          {"type", "model"},
          {"display_name", name},
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
  const std::vector<std::string> names = NamesOf(*model);
  OrderedJson cards = OrderedJson::array();
  for (const std::string& name : names) cards.push_back(ModelCard(*model, name));
  return response.SendJson(200, Dump({{"object", "list"},
                                      {"data", std::move(cards)},
                                      {"has_more", false},
                                      {"first_id", names.front()},
                                      {"last_id", names.back()}}));
}

absl::Status HandleModel(const HttpApi& api, const HttpRequest& request, Response& response) {
  MOE_ASSIGN_OR_RETURN(const ModelBoard::ModelPtr model, api.board.Described());
  const std::string name = request.head.path.substr(std::string("/v1/models/").size());
  MOE_RETURN_IF_ERROR(CheckModelName(name, *model));
  const bool is_alias = std::ranges::count(model->names.aliases, name) > 0;
  return response.SendJson(200, Dump(ModelCard(*model, is_alias ? name : model->name)));
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
