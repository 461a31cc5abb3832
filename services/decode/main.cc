// moestro-decode: owns the KV pool, generates tokens.

#include "common/base/status.h"
#include "common/kernels/dispatch.h"
#include "common/process/choice.h"
#include "common/process/flags.h"
#include "common/process/process.h"
#include "services/decode/server.h"

int main(int argc, char** argv) {
  moestro::TerminationSignal termination;
  moestro::decode::DecodeConfig config;
  moestro::ProgramFlags flags{
      "moestro-decode: the decode role of a moestro node.\n"
      "Maps the weight store's segment, owns the KV pool and generates tokens for all running requests in one batch.\n"
      "MOESTRO_ISA=ref|avx2|avx_vnni|avx512|avx512_vnni|avx512_bf16|amx in the environment forces the kernels."};
  moestro::AddNodeOptions(flags, "decode", config.node);
  moestro::AddCpuShare(flags, moestro::CpuRole::kDecode, config.share);
  moestro::AddCpuOptions(flags, config.cpu);
  moestro::AddWords(
      flags, "--int8-activations", {moestro::kInt8ActivationsWords.begin(), moestro::kInt8ActivationsWords.end()},
      std::string(moestro::kInt8ActivationsWords[static_cast<size_t>(config.int8_activations)]),
      [&](size_t word) { config.int8_activations = static_cast<moestro::Int8Activations>(word); },
      std::string(moestro::kInt8ActivationsHelp))
      .Because("as the checkpoint's publisher computes");
  moestro::AddChoice(
      flags, "--mode", moestro::decode::kModeWords, config.mode,
      "latency: few sequences a step, which stays short; throughput: as many tokens a second as the CPU can, for "
      "files of requests ('moestro batch'): steps take what time they take")
      .Because("people wait for answers; files of requests are the exception");
  flags
      .Add(
          "--max-batch", config.max_batch,
          "Most sequences in one decode step, including those still in their prompt; 0: as many as keep a step, as "
          "measured at the start, below 250 ms or four times a step of one, within 4 to 64; with --mode throughput 256 "
          "(at most 64, or 8192)")
      .Because("found at the start");
  flags
      .Add("--itl-bound-ms", config.itl_bound_ms,
           "Steps in which a sequence decodes should take fewer milliseconds than this; it bounds the prompt tokens of "
           "such a step, of which there are at least 8; 0: 50, or 1.5 times the step without prompts if that is more; "
           "no "
           "bound with --mode throughput")
      .Because("found at the start");
  flags
      .Add("--max-chunk-tokens", config.max_chunk_tokens,
           "Most prompt tokens in one step; without a decoding sequence a step takes this many; 0: as many as make "
           "reading the weights a tenth of a step's time, as measured at the start, within 256 to 4096, a second and a "
           "GiB of buffers; 256 with a device; with --mode throughput 1024, and 4096 if experts stream to a device")
      .Because("found at the start");
  flags
      .Add("--kv-tokens", config.kv_tokens,
           "Tokens the KV pool holds, with memory from the start; 0: up to sixteen contexts, or a context for each "
           "sequence with --mode throughput, which take memory as tokens come, as far as the machine can spare it; "
           "with a device two contexts, at most 65536 tokens")
      .Because("found at the start");
  flags
      .Add("--reserve-ahead-tokens", config.reserve_ahead_tokens,
           "Room for generated tokens that a request needs to be admitted. It gets more as it grows, if necessary from "
           "the request that arrived last")
      .Because("many answers are not longer; those that are get more as they grow");
  flags
      .Add("--prefix-cache", config.prefix_cache,
           "Keep the KV of prompts and answers while there is room, for requests with the same prefix")
      .Because("the turns of a chat begin alike");
  flags
      .Add("--lease-timeout-seconds", config.lease_timeout_seconds,
           "Reserved pages are freed after this long if the request is not started and prefill makes no progress on it "
           "or "
           "on one ahead of it")
      .Because("leases are renewed with every layer, so only a writer that is gone is silent for so long");
  flags
      .Add("--device", config.device,
           "Computes attention, dense and shared experts and logits; the CPU keeps the routed experts. none: the CPU "
           "computes everything; cuda:N: a GPU, which needs memory for all these weights and the KV of the longest "
           "sequence, and is fastest with room for the whole KV pool; host: threads of this machine that emulate a "
           "device, "
           "for trials, not for speed. With --mode throughput the shares differ: see --batch-schedule")
      .Because("a GPU is used when somebody names it, as deploy/up does");
  flags
      .Add("--copy-rate", config.copy_rate,
           "With --device host, for trials: bytes per second of its bus in each direction (12GB); 0: as fast as "
           "memory")
      .AsBytes()
      .Because("a real bus has its own rate");
  moestro::AddChoice(
      flags, "--overlap", moestro::decode::kOverlapWords, config.overlap,
      "With a device, cut a step into two batches: the device computes one while the CPU computes the other's "
      "experts. auto: when that is faster by times measured at the start; on: always; off: never")
      .Because("with a device, measured at the start");
  flags
      .Add("--expert-cache-bytes", config.expert_cache_bytes,
           "Device memory for routed experts, of which the device then computes some; 0: none")
      .AsBytes()
      .Because("somebody must say how much of a GPU is free for it");
  moestro::AddChoice(
      flags, "--expert-schedule", moestro::decode::kScheduleWords, config.expert_schedule,
      "With --expert-cache-bytes, where a layer's routed experts are computed. fixed: those that the device holds on "
      "the device, the others on the CPU; prompts on the CPU alone; hybrid: as by times measured at the start the "
      "layer "
      "ends first: the device may load experts for it, the CPU compute held ones; on-demand: on the device, loading "
      "what "
      "it does not hold")
      .Because("the same tokens every time; the others depend on what the device holds");
  moestro::AddChoice(
      flags, "--expert-policy", moestro::decode::kPolicyWords, config.expert_policy,
      "Then: which expert of a layer makes room for another. lru: the one used longest ago; lfu: the one used least "
      "often; mrs: the one with the smallest average of recent scores, those of experts that were nearly chosen "
      "included; first-layers: none, the device holds all experts of the first layers")
      .Because("needs no history of scores");
  flags
      .Add("--prefetch-layers", config.prefetch_layers,
           "Then: from what routers of so many next layers would choose, 0 to 3, experts are loaded ahead while "
           "the bus is idle; 0: none")
      .Because("what is foreseen wrongly costs the bus's time");
  flags
      .Add("--near-units", config.near_units,
           "With --device host, for trials: threads that stand for processors on so many DIMMs, as TriMoE has "
           "them. They compute experts of few rows where these lie; 0: none")
      .Because("for trials");
  flags.Add("--near-rate", config.near_rate, "Then: bytes per second that each reads (20GB); 0: as fast as it can")
      .AsBytes()
      .Because("for trials");
  moestro::AddChoice(flags, "--domain-schedule", moestro::decode::kDomainScheduleWords, config.domain_schedule,
                     "Then: which of device, CPU and these computes an expert. tri-domain: by foreseen and by actual "
                     "loads, so that the "
                     "layer ends first; for comparison: klotski: the device all; ktransformers: device and CPU; monde: "
                     "device and DIMMs")
      .Because("TriMoE's own; the others are for comparison");
  moestro::AddChoice(
      flags, "--batch-schedule", moestro::decode::kBatchScheduleWords, config.batch_schedule,
      "With --mode throughput and a device, which then computes the routed experts, too, as their weights come layer "
      "by "
      "layer. cgopipe: the CPU attends ahead, weights come in pages between micro-batches; for comparison: s2: a "
      "layer's "
      "weights come as a whole; s3: and the CPU does not attend ahead; s4: the device attends, the cache comes to it; "
      "whole-layer: and all sequences are one micro-batch")
      .Because("MoE-Lightning's own; the others are for comparison");
  flags
      .Add("--micro-batch", config.micro_batch,
           "Then: sequences of a micro-batch, of which a step has 256 at most; 0: as by times measured at the "
           "start a step takes least")
      .Because("with a device, found at the start");
  flags
      .Add("--device-memory", config.device_memory_bytes,
           "Then: memory of the device for routed experts and what steps hand over (8GB); what two layers do not "
           "need holds experts that stay; 0: all of a GPU's, 4 GiB of the host's")
      .AsBytes()
      .Because("with a device, found at the start");
  flags
      .Add("--device-count", config.devices,
           "Then: devices that share every routed expert (tensor parallel), each with --device-memory and a link of "
           "its own; more than one with --device host only")
      .Because("GPUs do not share experts yet");
  flags
      .Add("--device-pin-bytes", config.pin_bytes,
           "With --expert-cache-bytes, or experts that stream: at most this much of the weights is pinned for "
           "fast copies to "
           "a GPU (32GB); 0: all")
      .AsBytes()
      .Because("with a device, found at the start");
  flags
      .Add("--routing-trace", config.routing_trace,
           "File that records the experts of every token, the next-best ones, and what earlier layers would have "
           "predicted, "
           "for 'moestro routing'; empty: none. 9.3 KB per token for DeepSeek-V3; steps take longer")
      .Because("a recording slows steps down");
  flags
      .Add("--poison-freed-pages", config.poison_freed_pages,
           "For tests: fill free KV pages with NaN, so that any result computed from them is an error")
      .Because("for tests");
  return moestro::RunRole(flags, argc, argv, "decode", config.node, [&]() -> absl::Status {
    MOE_ASSIGN_OR_RETURN(config.lent_cpus, moestro::TakeCpuShare(config.share, moestro::CpuRole::kDecode));
    MOE_RETURN_IF_ERROR(moestro::decode::ValidateDecodeConfig(config));
    return moestro::decode::RunDecodeServer(config, termination);
  });
}
