// moestro-decode: owns the KV pool, generates tokens.
#include <CLI/CLI.hpp>

#include "common/rpc/process.h"
#include "common/telemetry/log.h"
#include "services/decode/server.h"

int main(int argc, char** argv) {
  moestro::TerminationSignal termination;
  moestro::DecodeConfig config;
  CLI::App app{
      "moestro-decode: the decode role of a moestro node.\n"
      "Maps the weight store's segment, owns the KV pool and generates tokens for all running requests in one batch.\n"
      "MOESTRO_ISA=ref|avx2|avx512|avx512_bf16 in the environment forces the kernels."};
  moestro::AddNodeOptions(app, "decode", config.node);
  moestro::AddCpuShare(app, moestro::CpuRole::kDecode, config.share);
  moestro::AddCpuOptions(app, config.cpu);
  app.add_option("--max-batch", config.max_batch, "Most sequences in one decode step");
  app.add_option("--kv-tokens", config.kv_tokens,
                 "Tokens the KV pool holds; 0: two contexts, at most 65536 tokens and a quarter of free shared memory");
  app.add_option("--lease-timeout-seconds", config.lease_timeout_seconds,
                 "Pages that a request has reserved come back after this long if it is not started");
  if (int exit_code = 0; !moestro::ParseCommandLine(app, argc, argv, exit_code)) return exit_code;
  if (const auto status = moestro::InitLogging("decode", config.node.log_level); !status.ok()) {
    return moestro::ReportFatal(status);
  }
  if (const auto others = moestro::TakeCpuShare(config.share, moestro::CpuRole::kDecode); !others.ok()) {
    return moestro::ReportFatal(others.status());
  }
  if (const auto status = moestro::ValidateDecodeConfig(config); !status.ok()) return moestro::ReportFatal(status);
  const auto status = moestro::RunDecodeServer(config, termination);
  return status.ok() ? moestro::kExitOk : moestro::ReportFatal(status);
}
