// moestro-decode: owns the KV pool, generates tokens.
#include <CLI/CLI.hpp>

#include "common/base/status.h"
#include "common/process/process.h"
#include "services/decode/server.h"

int main(int argc, char** argv) {
  moestro::TerminationSignal termination;
  moestro::DecodeConfig config;
  CLI::App app{
      "moestro-decode: the decode role of a moestro node.\n"
      "Maps the weight store's segment, owns the KV pool and generates tokens for all running requests in one batch.\n"
      "MOESTRO_ISA=ref|avx2|avx512|avx512_bf16|amx in the environment forces the kernels."};
  moestro::AddNodeOptions(app, "decode", config.node);
  moestro::AddCpuShare(app, moestro::CpuRole::kDecode, config.share);
  moestro::AddCpuOptions(app, config.cpu);
  app.add_option("--max-batch", config.max_batch, "Most sequences in one decode step, those in their prompt included");
  app.add_option("--itl-bound-ms", config.itl_bound_ms,
                 "Milliseconds below which a step shall stay in which sequences decode: bounds how many tokens of "
                 "prompts it takes along, 8 at the least");
  app.add_option("--max-chunk-tokens", config.max_chunk_tokens,
                 "Most tokens of prompts in one step, and as many when no sequence decodes");
  app.add_option("--kv-tokens", config.kv_tokens,
                 "Tokens the KV pool holds; 0: two contexts, at most 65536 tokens and a quarter of free shared memory");
  app.add_option("--reserve-ahead-tokens", config.reserve_ahead_tokens,
                 "Room for generated tokens that a request needs to be admitted; it gets more as it goes on, in the "
                 "end from the request that came last");
  app.add_option("--prefix-cache", config.prefix_cache,
                 "Keep the KV of prompts and answers while there is room, for requests that begin alike");
  app.add_option(
      "--lease-timeout-seconds", config.lease_timeout_seconds,
      "Pages that a request has reserved come back after so long in which it is not started, nor prefill gets any "
      "further with it or with one before it");
  app.add_option(
      "--device", config.device,
      "Computes attention, dense and shared experts and logits beside the CPU, which keeps the routed "
      "experts. none: the CPU does all; cuda:N: a GPU, which needs memory for all these weights and the KV pool; host: "
      "threads of this machine that stand for a device, for trying it out, not for speed");
  moestro::AddChoice(app, "--overlap", moestro::kOverlapWords, config.overlap,
                     "With a device, cut a step into two batches, of which one is on the device while the CPU computes "
                     "the other's experts. auto: when it is faster, from times measured at the start; on: always; off: "
                     "never");
  app.add_option("--expert-cache-bytes", config.expert_cache_bytes,
                 "Device memory for the routed experts that were used last, which the device then computes; 0: none")
      ->transform(CLI::AsSizeValue(/*kb_is_1000=*/false));
  app.add_option(
         "--device-pin-bytes", config.pin_bytes,
         "With --expert-cache-bytes: of the weights, so much at most is pinned for fast copies to a GPU (32GB); "
         "0: all")
      ->transform(CLI::AsSizeValue(/*kb_is_1000=*/false));
  app.add_option(
      "--routing-trace", config.routing_trace,
      "File to record in which experts every token is routed to, for 'moestro routing'; empty: none. 4 bytes "
      "an expert: 1.9 KB a token for DeepSeek-V3");
  app.add_option("--poison-freed-pages", config.poison_freed_pages,
                 "For tests: fill KV pages that nobody has with NaN, so that a result that they go into is an error");
  return moestro::RunRole(app, argc, argv, "decode", config.node, [&]() -> absl::Status {
    MOE_RETURN_IF_ERROR(moestro::TakeCpuShare(config.share, moestro::CpuRole::kDecode));
    MOE_RETURN_IF_ERROR(moestro::ValidateDecodeConfig(config));
    return moestro::RunDecodeServer(config, termination);
  });
}
