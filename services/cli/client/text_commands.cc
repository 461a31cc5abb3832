#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "moestro/v1/inference.pb.h"
#include "services/cli/client/request_flags.h"
#include "services/cli/client/router_client.h"
#include "services/cli/command.h"
#include "services/cli/output.h"

namespace moestro::cli {
namespace {

struct TokenizeFlags {
  ServerFlags server;
  std::string text;
  bool no_special_tokens = false;
  bool json = false;
};

struct DetokenizeFlags {
  ServerFlags server;
  std::vector<int32_t> ids;
  bool keep_special_tokens = false;
};

absl::Status Tokenize(const TokenizeFlags& flags) {
  MOE_RETURN_IF_ERROR(CheckUtf8("--text", flags.text));
  v1::TokenizeRequest request;
  request.set_text(flags.text);
  request.set_no_special_tokens(flags.no_special_tokens);
  v1::TokenizeResponse reply;
  MOE_RETURN_IF_ERROR(RouterClient(flags.server).Tokenize(request, reply));
  const std::vector<int32_t> ids(reply.ids().begin(), reply.ids().end());
  const std::vector<std::string> pieces(reply.pieces().begin(), reply.pieces().end());
  if (flags.json) {
    PrintJson({{"ids", ids}, {"pieces", pieces}}, /*indent=*/false);
    return absl::OkStatus();
  }
  for (size_t i = 0; i < ids.size(); ++i) {
    // Quoted as in JSON, so that white space and control characters are visible.
    PrintText(absl::StrCat(ids[i], "\t", nlohmann::json(i < pieces.size() ? pieces[i] : "").dump(), "\n"));
  }
  return absl::OkStatus();
}

absl::Status Detokenize(const DetokenizeFlags& flags) {
  v1::DetokenizeRequest request;
  request.mutable_ids()->Add(flags.ids.begin(), flags.ids.end());
  request.set_keep_special_tokens(flags.keep_special_tokens);
  v1::DetokenizeResponse reply;
  MOE_RETURN_IF_ERROR(RouterClient(flags.server).Detokenize(request, reply));
  PrintText(reply.text() + "\n");
  return absl::OkStatus();
}

}  // namespace

void AddTextCommands(FlagSet& program, std::vector<Command>& commands) {
  const auto tokenize = std::make_shared<TokenizeFlags>();
  FlagSet to_ids = program.AddCommand("tokenize", "The token ids of a text, with the text of each");
  AddServerFlags(to_ids, tokenize->server);
  to_ids.Add("text,--text", tokenize->text, "The text; nothing in it becomes a special token").Required();
  to_ids.AddSwitch("--no-special-tokens", tokenize->no_special_tokens, "Leave out BOS");
  to_ids.AddSwitch("--json", tokenize->json, "One JSON object");
  commands.push_back({to_ids, [tokenize] { return Tokenize(*tokenize); }});

  const auto detokenize = std::make_shared<DetokenizeFlags>();
  FlagSet to_text = program.AddCommand("detokenize", "The text of token ids");
  AddServerFlags(to_text, detokenize->server);
  to_text.Add("ids,--token-ids", detokenize->ids, "Token ids, separated by commas or blanks").Delimiter(',').Required();
  to_text.AddSwitch("--keep-special-tokens", detokenize->keep_special_tokens, "Include special tokens");
  commands.push_back({to_text, [detokenize] { return Detokenize(*detokenize); }});
}

}  // namespace moestro::cli
