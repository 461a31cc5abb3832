// `moestro plan`: predicts the effects of a configuration from formulas, before anything runs.
#include <algorithm>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/base/status.h"
#include "common/checkpoint/config.h"
#include "common/process/flag_check.h"
#include "common/report/number.h"
#include "common/roofline/traffic.h"
#include "services/cli/command.h"
#include "services/cli/model/inspect.h"
#include "services/cli/output.h"
#include "services/cli/plan/explain_batch.h"
#include "services/prefill/distributed/simulate_ranks.h"

namespace moestro::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kDslp[] = "dslp";
constexpr char kRoofline[] = "roofline";
constexpr char kBatch[] = "batch";

struct PlanFlags {
  std::string explain;
  std::string model = "deepseek-v3";
  int ranks = 2;
  int64_t tokens = 20480;
  ExplainBatchFlags batch;
  bool json = false;
};

absl::StatusOr<weights::ModelSpec> ReadSpec(const std::string& model) {
  absl::StatusOr<weights::ModelSpec> spec = ReadModelSpec(model);
  if (!spec.ok()) return Annotate(spec.status(), absl::StrCat("--model ", model));
  return spec;
}

int64_t Moved(const roofline::ExpertTraffic& t) {
  return t.dispatch.sent + t.dispatch.received + t.combine.sent + t.combine.received;
}

Json TrafficJson(const roofline::ExpertTraffic& t, int64_t layers) {
  return {{"dispatch_sent_bytes", t.dispatch.sent},
          {"dispatch_received_bytes", t.dispatch.received},
          {"combine_sent_bytes", t.combine.sent},
          {"combine_received_bytes", t.combine.received},
          {"layer_bytes", Moved(t)},
          {"prompt_bytes", layers * Moved(t)}};
}

// Bytes over the link of the rank with the most rows.
absl::StatusOr<Json> ExplainDslp(const PlanFlags& flags) {
  MOE_ASSIGN_OR_RETURN(const weights::ModelSpec spec, ReadSpec(flags.model));
  MOE_RETURN_IF_ERROR(CheckHasExperts(spec, flags.model, "--explain dslp"));
  MOE_RETURN_IF_ERROR(CheckFlagRange("--ranks", flags.ranks, 2, spec.num_experts));
  MOE_RETURN_IF_ERROR(CheckFlagRange("--tokens", flags.tokens, 1, spec.max_position_embeddings));
  const auto [rows, imbalance] = prefill::ShareOut(flags.tokens, flags.ranks);
  const auto busiest = static_cast<int>(std::ranges::max_element(rows) - rows.begin());
  const int64_t layers = spec.num_moe_layers();
  const roofline::ExpertTraffic standard = roofline::StandardEpTraffic(
      spec, roofline::EvenPairs(spec, ProportionalParts::Even(flags.ranks), rows), flags.ranks, busiest);
  const roofline::ExpertTraffic small = roofline::SmallEpTraffic(spec, rows, busiest);
  const roofline::LinkTraffic ring = roofline::RingTraffic(spec.kv_dim(), rows, busiest);
  return Json{{"model", flags.model},
              {"ranks", flags.ranks},
              {"tokens", flags.tokens},
              {"experts_per_token", spec.experts_per_token},
              {"rows", rows},
              {"attention_imbalance", imbalance},
              {"ring",
               {{"sent_bytes", ring.sent},
                {"received_bytes", ring.received},
                {"prompt_bytes", spec.num_layers * (ring.sent + ring.received)}}},
              {"standard_ep", TrafficJson(standard, layers)},
              {"small_ep", TrafficJson(small, layers)},
              {"small_over_standard", static_cast<double>(Moved(small)) / static_cast<double>(Moved(standard))},
              {"break_even_ranks", spec.experts_per_token},
              {"break_even_ranks_by_bytes", roofline::BreakEvenRanks(spec)}};
}

void PrintDslp(const Json& plan) {
  const auto bytes = [](const Json& number) { return HumanBytes(number.get<int64_t>()); };
  PrintText(absl::StrFormat("%s, %d tokens on %d ranks, per layer, over the busiest rank's link\n",
                            plan["model"].get<std::string>(), plan["tokens"].get<int64_t>(),
                            plan["ranks"].get<int64_t>()));
  PrintText("                      out: sent   received  back: sent   received    together  whole prompt\n");
  for (const auto& [key, name] : {std::pair("standard_ep", "standard EP"), std::pair("small_ep", "SmallEP")}) {
    const Json& t = plan[key];
    PrintText(absl::StrFormat("  %-16s %12s %10s %11s %10s %11s %13s\n", name, bytes(t["dispatch_sent_bytes"]),
                              bytes(t["dispatch_received_bytes"]), bytes(t["combine_sent_bytes"]),
                              bytes(t["combine_received_bytes"]), bytes(t["layer_bytes"]), bytes(t["prompt_bytes"])));
  }
  const Json& ring = plan["ring"];
  PrintText(absl::StrFormat("  %-16s %12s %10s %46s\n", "ring pass-KV", bytes(ring["sent_bytes"]),
                            bytes(ring["received_bytes"]), bytes(ring["prompt_bytes"])));
  PrintText(absl::StrFormat(
      "SmallEP moves %.3f of standard EP's bytes: about S / A for S ranks and A = %d experts per token.\n"
      "Break-even: S <= A = %d by rows; S <= %d by bytes, which include the routing of every row.\n"
      "Attention: the busiest rank does %.3f times the mean.\n",
      plan["small_over_standard"].get<double>(), plan["experts_per_token"].get<int64_t>(),
      plan["break_even_ranks"].get<int64_t>(), plan["break_even_ranks_by_bytes"].get<int64_t>(),
      plan["attention_imbalance"].get<double>()));
}

absl::Status Plan(PlanFlags flags) {
  flags.batch.model = flags.model;
  flags.batch.json = flags.json;
  if (flags.explain == kRoofline) return ExplainRoofline(flags.batch);
  if (flags.explain == kBatch) return ExplainBatch(flags.batch);
  MOE_ASSIGN_OR_RETURN(const Json plan, ExplainDslp(flags));
  if (flags.json) {
    PrintJson(plan, true);
  } else {
    PrintDslp(plan);
  }
  return absl::OkStatus();
}

}  // namespace

void AddPlanCommand(FlagSet& program, std::vector<Command>& commands) {
  const auto flags = std::make_shared<PlanFlags>();
  FlagSet command = program.AddCommand("plan", "Predict the effects of a configuration from formulas");
  command
      .Add("--explain", flags->explain,
           "dslp: bytes that a prefill over several devices exchanges; roofline: where attention and experts of "
           "decode belong; batch: how many requests should decode together, offline")
      .Required()
      .OneOf({kDslp, kRoofline, kBatch});
  command.Add(
      "--model", flags->model,
      absl::StrCat(absl::StrJoin(checkpoint::PublishedModels(), ", "), ", a checkpoint directory or a config.json"));
  command.Add("--ranks", flags->ranks, "dslp: devices");
  command.Add("--tokens", flags->tokens, "dslp: tokens of the prompt");
  ExplainBatchFlags& batch = flags->batch;
  command.Add("--hardware", batch.hardware,
              "roofline, batch: JSON file of a machine (deploy/hardware); batch without it: this machine, measured");
  command
      .Add("--format", batch.format, "roofline, batch: of the linear layers; default: published, as the model has them")
      .OneOf(std::vector<std::string>(std::begin(kBatchFormats), std::end(kBatchFormats)));
  command.Add("--prompt", batch.prompt, "batch: tokens of each request's prompt");
  command.Add("--generate", batch.generate, "batch: tokens that each request generates");
  command.Add("--context", batch.context, "roofline: positions that attention sees");
  command.Add("--micro-batch", batch.micro_batch, "roofline: rows that go through the experts together");
  command.AddSwitch("--json", flags->json, "JSON");
  commands.push_back({command, [flags] { return Plan(*flags); }});
}

}  // namespace moestro::cli
