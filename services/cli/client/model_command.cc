#include <memory>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/status.h"
#include "common/report/number.h"
#include "moestro/v1/inference.pb.h"
#include "services/cli/client/router_client.h"
#include "services/cli/command.h"
#include "services/cli/output.h"

namespace moestro::cli {
namespace {

struct ModelFlags {
  ServerFlags server;
  bool json = false;
};

absl::Status ShowModel(const ModelFlags& flags) {
  v1::GetModelResponse model;
  MOE_RETURN_IF_ERROR(RouterClient(flags.server).GetModel(model));
  const std::vector<int32_t> stop_ids(model.stop_ids().begin(), model.stop_ids().end());
  if (flags.json) {
    PrintJson({{"name", model.name()},
               {"family", model.family()},
               {"max_context_tokens", model.max_context_tokens()},
               {"vocab_size", model.vocab_size()},
               {"stop_ids", stop_ids},
               {"has_chat_template", model.has_chat_template()},
               {"fingerprint", model.fingerprint()},
               {"segment_bytes", model.segment_bytes()},
               {"ready", model.ready()},
               {"default_max_tokens", model.default_max_tokens()},
               {"default_temperature", model.default_temperature()},
               {"default_top_p", model.default_top_p()},
               {"default_top_k", model.default_top_k()},
               {"default_min_p", model.default_min_p()},
               {"default_repetition_penalty", model.default_repetition_penalty()},
               {"sampling_source", model.sampling_source()},
               {"bos_token", model.bos_token()},
               {"eos_token", model.eos_token()},
               {"version", model.version()}},
              /*indent=*/true);
    return absl::OkStatus();
  }
  PrintText(absl::StrCat(
      "name           ", model.name(), "\n", "family         ", model.family(), "\n", "context        ",
      model.max_context_tokens(), " tokens\n", "vocabulary     ", model.vocab_size(), " rows\n", "stop ids       ",
      absl::StrJoin(stop_ids, ", "), "\n", "chat template  ", model.has_chat_template() ? "yes" : "no", "\n",
      "sampling       ", "temperature ", model.default_temperature(), ", top-p ", model.default_top_p(), ", top-k ",
      model.default_top_k(), ", min-p ", model.default_min_p(), ", repetition penalty ",
      model.default_repetition_penalty(), " (", model.sampling_source(), ")\n", "answers        ",
      model.default_max_tokens() > 0 ? absl::StrCat("up to ", model.default_max_tokens(), " tokens")
                                     : "to the end of the context",
      "\n", "weights        ", HumanBytes(model.segment_bytes()), ", fingerprint ", model.fingerprint(), "\n"));
  return absl::OkStatus();
}

}  // namespace

void AddModelCommand(FlagSet& program, std::vector<Command>& commands) {
  const auto flags = std::make_shared<ModelFlags>();
  FlagSet command = program.AddCommand("model", "The model that the node serves");
  AddServerFlags(command, flags->server);
  command.AddSwitch("--json", flags->json, "One JSON object");
  commands.push_back({command, [flags] { return ShowModel(*flags); }});
}

}  // namespace moestro::cli
