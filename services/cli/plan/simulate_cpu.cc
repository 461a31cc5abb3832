#include "services/cli/plan/simulate_cpu.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/check.h"
#include "common/base/status.h"
#include "common/checkpoint/config.h"
#include "common/process/flag_check.h"
#include "services/cli/output.h"

namespace moestro::cli {
namespace {

using Json = nlohmann::ordered_json;

DType FormatOfFlag(const std::string& format) {
  if (format == kCpuFormats[0]) return DType::kI8;
  return format == kCpuFormats[1] ? DType::kF8E4M3 : DType::kBF16;
}

Json SecondsJson(const roofline::CpuSeconds& seconds) {
  return {{"seconds", seconds.total()},
          {"read_seconds", seconds.read},
          {"compute_seconds", seconds.compute},
          {"exchange_seconds", seconds.exchange},
          {"wait_seconds", seconds.wait}};
}

// The mean token of `generate`, which the linear terms make the token in their middle.
int64_t MiddlePosition(int64_t tokens, int64_t generate) { return tokens + generate / 2; }

absl::StatusOr<Json> Rows(const roofline::CpuMachine& machine, const SimulateCpuFlags& flags) {
  const weights::ModelSpec spec = checkpoint::PublishedModel(flags.model);
  const DType format = FormatOfFlag(flags.format);
  MOE_RETURN_IF_ERROR(CheckFlagRange("--generate", flags.generate, 1, spec.max_position_embeddings - 1));
  Json rows = Json::array();
  for (const int64_t tokens : flags.tokens) {
    MOE_RETURN_IF_ERROR(CheckFlagRange("--tokens", tokens, 1, spec.max_position_embeddings - flags.generate));
    const int64_t position = MiddlePosition(tokens, flags.generate);
    rows.push_back({{"tokens", tokens},
                    {"generate", flags.generate},
                    {"ttft", SecondsJson(roofline::PromptSeconds(machine, spec, format, tokens))},
                    {"tpot", SecondsJson(roofline::DecodeSeconds(machine, spec, format, position))}});
  }
  return rows;
}

// "Cost Effective Deployment of DeepSeek R1 with Intel Xeon 6 CPU on SGLang" (Intel, 2025), Table 1, ms: one request,
// 1024 tokens in and out, two Xeon 6980P. llama.cpp has no FP8: there the table compares with its Q8.
struct ArticleRow {
  const char* what;
  const char* model;
  DType format;
  int sockets;
  double llama_ttft, llama_tpot;
  double ttft, tpot;
  bool fits_ttft, fits_tpot;  // a constant of the article's way was chosen to give it: not a prediction
};
constexpr int64_t kArticleTokens = 1024;
constexpr double kArticleBandwidth = 1.45e12;  // bytes/s, both sockets
constexpr double kArticleSockets = 2;
constexpr double kArticleFp8 = 0.85;  // of INT8's speed: the middle of its "80 to 90 %"
constexpr double kArticleExchange = 0.03;
constexpr ArticleRow kTable1[] = {
    {"DeepSeek-R1 671B, INT8", "deepseek-v3", DType::kI8, 2, 24546.76, 172.01, 1885.25, 67.99, true, true},
    {"DeepSeek-R1 671B, FP8", "deepseek-v3", DType::kF8E4M3, 2, 24546.76, 172.01, 2235.00, 77.72, false, false},
    {"Qwen3-235B, INT8", "qwen3-235b", DType::kI8, 2, 16806.34, 214.9, 1164.29, 51.84, false, false},
    {"Qwen3-235B, FP8", "qwen3-235b", DType::kF8E4M3, 2, 16806.34, 214.9, 1340.62, 55.88, false, false},
    {"R1-Distill-70B, INT8", "r1-distill-llama-70b", DType::kI8, 2, 20306.85, 194.97, 2637.84, 76.53, true, true},
    {"Llama-3.2-3B, BF16, one socket", "llama-3.2-3b", DType::kBF16, 1, 1659.94, 55.35, 268.2, 16.98, true, false},
};
constexpr const ArticleRow& kLatentRow = kTable1[0];
constexpr const ArticleRow& kGroupedRow = kTable1[4];

double Bytes(const ArticleRow& row) {
  const weights::ModelSpec spec = checkpoint::PublishedModel(row.model);
  return roofline::DecodeBytes(spec, roofline::CountModelInFormat(spec, row.format),
                               MiddlePosition(kArticleTokens, kArticleTokens), 1,
                               spec.num_moe_layers() * spec.experts_per_token);
}

double ReadMs(const ArticleRow& row) { return 1e3 * Bytes(row) / (kArticleBandwidth * row.sockets / kArticleSockets); }

double Operations(const ArticleRow& row) {
  return roofline::PrefillOperations(checkpoint::PublishedModel(row.model), model::MlaForm::kUnabsorbed,
                                     kArticleTokens);
}

// The article's way, from its text and three of its figures. A token: reading at its bandwidth, and a constant time per
// layer for all else, which DeepSeek-R1's row gives for MLA and the 70B row for grouped queries. A prompt: operations
// at one rate, which DeepSeek-R1's row gives for models with experts; each dense model has a rate of its own. FP8:
// INT8's time over kArticleFp8.
double ArticleTpot(const ArticleRow& row) {
  const weights::ModelSpec spec = checkpoint::PublishedModel(row.model);
  const ArticleRow& fitted = spec.kv_lora_rank > 0 ? kLatentRow : kGroupedRow;
  const auto fitted_layers = static_cast<double>(checkpoint::PublishedModel(fitted.model).num_layers);
  const double layer_ms = (fitted.tpot - ReadMs(fitted)) / fitted_layers;
  ArticleRow int8 = row;
  if (row.format == DType::kF8E4M3) int8.format = DType::kI8;
  const double ms = ReadMs(int8) + static_cast<double>(spec.num_layers) * layer_ms;
  return row.format == DType::kF8E4M3 ? ms / kArticleFp8 : ms;
}

double ArticleTtft(const ArticleRow& row) {
  if (row.fits_ttft) return row.ttft;
  const double ms = kLatentRow.ttft * Operations(row) / Operations(kLatentRow);
  return row.format == DType::kF8E4M3 ? ms / kArticleFp8 : ms;
}

// "restated": the figure is among those that the article's 80 to 90 % summarise, so agreement checks its text only.
const char* KindOf(const ArticleRow& row, bool fitted) {
  if (fitted) return "fitted";
  return row.format == DType::kF8E4M3 ? "restated" : "predicted";
}

Json ClaimJson(const ArticleRow& row, const std::string& what, double llama, double paper, double built, double article,
               bool fitted) {
  Json way = {{"ms", article}, {"kind", KindOf(row, fitted)}};
  if (!fitted) way["deviation"] = article / paper - 1;
  return {{"what", absl::StrCat(row.what, ", ", what)},
          {"paper_ms", paper},
          {"built", {{"ms", built}, {"kind", "predicted"}, {"deviation", built / paper - 1}}},
          {"articles_way", way},
          {"llama_cpp_ms", llama},
          {"speedup", {{"paper", llama / paper}, {"built", llama / built}}}};
}

Json Table1Claims(const roofline::CpuMachine& machine) {
  Json claims = Json::array();
  for (const ArticleRow& row : kTable1) {
    const weights::ModelSpec spec = checkpoint::PublishedModel(row.model);
    roofline::CpuMachine part = machine;
    part.sockets = row.sockets;
    const roofline::CpuSeconds prompt = roofline::PromptSeconds(part, spec, row.format, kArticleTokens);
    const roofline::CpuSeconds token =
        roofline::DecodeSeconds(part, spec, row.format, MiddlePosition(kArticleTokens, kArticleTokens));
    claims.push_back(
        ClaimJson(row, "TTFT", row.llama_ttft, row.ttft, 1e3 * prompt.total(), ArticleTtft(row), row.fits_ttft));
    claims.push_back(
        ClaimJson(row, "TPOT", row.llama_tpot, row.tpot, 1e3 * token.total(), ArticleTpot(row), row.fits_tpot));
  }
  return claims;
}

// Root mean square of the deviations of the article's way over rows of this kind.
double RootMeanSquare(const Json& claims, const std::string& kind) {
  double squares = 0, count = 0;
  for (const Json& claim : claims) {
    const Json& way = claim["articles_way"];
    if (way["kind"] != kind) continue;
    squares += std::pow(way["deviation"].get<double>(), 2);
    ++count;
  }
  MOE_CHECK(count > 0);
  return std::sqrt(squares / count);
}

Json PaperJson(const roofline::CpuMachine& machine) {
  const Json claims = Table1Claims(machine);
  roofline::CpuMachine both = machine;
  both.sockets = kArticleSockets;
  const roofline::CpuSeconds token =
      roofline::DecodeSeconds(both, checkpoint::PublishedModel(kLatentRow.model), kLatentRow.format,
                              MiddlePosition(kArticleTokens, kArticleTokens));
  const double rate = Operations(kLatentRow) / (1e-3 * kLatentRow.ttft);
  return {{"table_1", claims},
          {"predicted_rms", RootMeanSquare(claims, "predicted")},
          {"restated_rms", RootMeanSquare(claims, "restated")},
          {"communication", {{"paper", kArticleExchange}, {"built", (token.exchange + token.wait) / token.total()}}},
          {"articles_prompt_ops_per_second", rate},
          {"articles_share_of_int8_rate", rate / (kArticleSockets * machine.int8_ops_per_second)}};
}

void PrintRows(const Json& rows) {
  PrintText("  tokens  generate   TTFT ms  read  compute  exchange  wait    TPOT ms  read  compute  exchange  wait\n");
  const auto parts = [](const Json& seconds) {
    const auto ms = [&](const char* field) { return 1e3 * seconds[field].get<double>(); };
    return absl::StrFormat("%9.2f %6.1f %7.2f %8.2f %6.2f", ms("seconds"), ms("read_seconds"), ms("compute_seconds"),
                           ms("exchange_seconds"), ms("wait_seconds"));
  };
  for (const Json& row : rows) {
    PrintText(absl::StrFormat("%8d %9d %s  %s\n", row["tokens"].get<int64_t>(), row["generate"].get<int64_t>(),
                              parts(row["ttft"]), parts(row["tpot"])));
  }
}

std::string DeviationText(const Json& way) {
  if (way["kind"] == "fitted") return "    fitted";
  return absl::StrFormat("%+8.1f %%%s", 100 * way["deviation"].get<double>(), way["kind"] == "restated" ? " *" : "");
}

void PrintPaper(const Json& paper) {
  PrintText(
      "\nTable 1 of the article, ms                      paper  as built  deviation  article's way  deviation"
      "  over llama.cpp: paper  as built\n");
  for (const Json& claim : paper["table_1"]) {
    const Json& built = claim["built"];
    const Json& way = claim["articles_way"];
    PrintText(absl::StrFormat("%-42s %10.2f %9.2f %+8.1f %% %14.2f %-12s %21.1f %9.1f\n",
                              claim["what"].get<std::string>(), claim["paper_ms"].get<double>(),
                              built["ms"].get<double>(), 100 * built["deviation"].get<double>(),
                              way["ms"].get<double>(), DeviationText(way), claim["speedup"]["paper"].get<double>(),
                              claim["speedup"]["built"].get<double>()));
  }
  const Json& communication = paper["communication"];
  PrintText(absl::StrFormat("exchange and waits, of DeepSeek-R1's token     %10.2f %9.2f\n",
                            communication["paper"].get<double>(), communication["built"].get<double>()));
  PrintText(absl::StrFormat(
      "As built: this project's kernels, at the shares of their rates that were measured on other CPUs. It has\n"
      "never run on this machine, so no row reproduces the article's.\n"
      "Article's way: its bandwidth, and constants fitted to the rows marked so. *: such figures gave the\n"
      "article's \"80 to 90 %%\" of INT8, so they check its text. Root mean square: predicted %.1f %%, * %.1f %%.\n"
      "The fitted rate of prompts is %.0f TOP/s, %.1f %% of the INT8 rate.\n",
      100 * paper["predicted_rms"].get<double>(), 100 * paper["restated_rms"].get<double>(),
      1e-12 * paper["articles_prompt_ops_per_second"].get<double>(),
      100 * paper["articles_share_of_int8_rate"].get<double>()));
}

}  // namespace

absl::Status SimulateCpu(roofline::CpuMachine machine, const SimulateCpuFlags& flags) {
  if (flags.paper && machine.sockets != kArticleSockets) {
    return absl::InvalidArgumentError("--paper: the article's machine has two sockets; use xeon-6980p-2s.json");
  }
  const roofline::CpuMachine whole = machine;
  if (flags.sockets != 0) {
    MOE_RETURN_IF_ERROR(CheckFlagRange("--sockets", flags.sockets, 1, static_cast<int64_t>(machine.sockets)));
    machine.sockets = flags.sockets;
  }
  MOE_ASSIGN_OR_RETURN(const Json rows, Rows(machine, flags));
  const Json paper = flags.paper ? PaperJson(whole) : Json::object();
  if (flags.json) {
    PrintJson({{"hardware", machine.name},
               {"sockets", machine.sockets},
               {"model", flags.model},
               {"format", flags.format},
               {"cpu", rows},
               {"paper", paper}},
              true);
    return absl::OkStatus();
  }
  PrintText(absl::StrFormat("%s, %s, on %s, %g socket%s\n", flags.model, flags.format, machine.name, machine.sockets,
                            machine.sockets == 1 ? "" : "s"));
  PrintRows(rows);
  if (flags.paper) PrintPaper(paper);
  return absl::OkStatus();
}

}  // namespace moestro::cli
