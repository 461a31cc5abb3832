// moestro-prefill: turns prompts into KV pages.
#include <CLI/CLI.hpp>
#include <utility>

#include "common/rpc/process.h"
#include "common/telemetry/log.h"
#include "services/prefill/server.h"

int main(int argc, char** argv) {
  moestro::TerminationSignal termination;
  moestro::PrefillConfig config;
  CLI::App app{
      "moestro-prefill: the prefill role of a moestro node.\n"
      "Maps the weight store's segment and fills KV pages that decode has leased, one prompt at a time.\n"
      "MOESTRO_ISA=ref|avx2|avx512|avx512_bf16 in the environment forces the kernels."};
  moestro::AddNodeOptions(app, "prefill", config.node);
  moestro::AddCpuShare(app, moestro::CpuRole::kPrefill, config.share);
  moestro::AddCpuOptions(app, config.cpu);
  app.add_option("--chunk-tokens", config.chunk_tokens, "Tokens of one forward pass; bounds the activation memory");
  app.add_option("--queue-limit", config.queue_limit, "Prompts that may wait; more are refused");
  app.add_option("--mla-form", config.mla_form.name,
                 "absorbed: every path gives the same bits; unabsorbed; auto: un-absorbed for long prompts (faster)");
  app.add_option("--unabsorbed-from-tokens", config.mla_form.unabsorbed_from_tokens,
                 "With --mla-form auto: shortest prompt that is computed un-absorbed");
  if (int exit_code = 0; !moestro::ParseCommandLine(app, argc, argv, exit_code)) return exit_code;
  if (const auto status = moestro::InitLogging("prefill", config.node.log_level); !status.ok()) {
    return moestro::ReportFatal(status);
  }
  auto others = moestro::TakeCpuShare(config.share, moestro::CpuRole::kPrefill);
  if (!others.ok()) return moestro::ReportFatal(others.status());
  config.lent_cpus = *std::move(others);
  if (const auto status = moestro::ValidatePrefillConfig(config); !status.ok()) return moestro::ReportFatal(status);
  const auto status = moestro::RunPrefillServer(config, termination);
  return status.ok() ? moestro::kExitOk : moestro::ReportFatal(status);
}
