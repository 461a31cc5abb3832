#include <cstdio>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "common/base/status.h"
#include "moestro/v1/inference.pb.h"
#include "services/cli/client/request_flags.h"
#include "services/cli/client/router_client.h"
#include "services/cli/command.h"
#include "services/cli/output.h"

namespace moestro::cli {
namespace {

struct ScoreFlags {
  ServerFlags server;
  TextFlags text;
  uint32_t top = 0;
  std::string way;
  bool json = false;
};

// The texts of single tokens. Each is requested once.
class TokenTexts {
 public:
  explicit TokenTexts(RouterClient& client) : client_(client) {}

  // Incomplete characters show as U+FFFD.
  absl::StatusOr<std::string> Get(int32_t id) {
    const auto known = texts_.find(id);
    if (known != texts_.end()) return known->second;
    v1::DetokenizeRequest request;
    request.add_ids(id);
    request.set_keep_special_tokens(true);
    v1::DetokenizeResponse reply;
    MOE_RETURN_IF_ERROR(client_.Detokenize(request, reply));
    return texts_[id] = reply.text();
  }

 private:
  RouterClient& client_;
  std::map<int32_t, std::string> texts_;
};

absl::StatusOr<nlohmann::json> ToJson(const v1::PositionScore& score, TokenTexts& texts) {
  nlohmann::json json = {{"id", score.id()}};
  MOE_ASSIGN_OR_RETURN(json["text"], texts.Get(score.id()));
  json["logprob"] = score.has_logprob() ? nlohmann::json(score.logprob()) : nlohmann::json();
  json["top"] = nlohmann::json::array();
  for (const v1::TokenAlternative& token : score.top()) {
    MOE_ASSIGN_OR_RETURN(const std::string text, texts.Get(token.id()));
    json["top"].push_back({{"id", token.id()}, {"text", text}, {"logprob", token.logprob()}});
  }
  return json;
}

absl::Status Score(const ScoreFlags& flags) {
  v1::ScoreRequest request;
  request.set_top(flags.top);
  request.set_way(WayOf(flags.way));
  if (!flags.text.token_ids.empty()) {
    request.mutable_token_ids()->mutable_ids()->Add(flags.text.token_ids.begin(), flags.text.token_ids.end());
  } else {
    MOE_ASSIGN_OR_RETURN(*request.mutable_text(), ReadText(flags.text));
  }
  RouterClient client(flags.server);
  std::vector<v1::PositionScore> scores;
  MOE_RETURN_IF_ERROR(client.Score(request, [&](const v1::ScoreResponse& reply) {
    scores.insert(scores.end(), reply.scores().begin(), reply.scores().end());
  }));
  TokenTexts texts(client);
  nlohmann::json positions = nlohmann::json::array();
  double sum = 0;
  size_t scored = 0;
  for (const v1::PositionScore& score : scores) {
    MOE_ASSIGN_OR_RETURN(nlohmann::json position, ToJson(score, texts));
    if (!flags.json) PrintJson(position, /*indent=*/false);
    positions.push_back(std::move(position));
    if (score.has_logprob()) sum += score.logprob();
    scored += score.has_logprob();
  }
  if (flags.json) PrintJson({{"positions", positions}, {"sum_logprob", sum}, {"scored", scored}}, /*indent=*/false);
  std::fprintf(stderr, "%zu tokens, sum of log-probabilities %.4f, mean %.4f\n", scores.size(), sum,
               scored > 0 ? sum / static_cast<double>(scored) : 0.0);
  return absl::OkStatus();
}

}  // namespace

void AddScoreCommand(FlagSet& program, std::vector<Command>& commands) {
  const auto flags = std::make_shared<ScoreFlags>();
  FlagSet command = program.AddCommand("score", "Log-probabilities of a given text: one JSON line per token");
  AddServerFlags(command, flags->server);
  AddTextFlags(command, flags->text, "--text", "--file");
  command.Add("--top", flags->top, "Alternatives for each position").Range(0, 100);
  AddWayFlag(command, flags->way, {"in_place", "streamed"});
  command.AddSwitch("--json", flags->json, "One JSON object instead of one line per token");
  commands.push_back({command, [flags] { return Score(*flags); }});
}

}  // namespace moestro::cli
