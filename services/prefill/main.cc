// moestro-prefill: turns prompts into KV pages.

#include "common/base/status.h"
#include "common/kernels/dispatch.h"
#include "common/process/choice.h"
#include "common/process/flags.h"
#include "common/process/process.h"
#include "services/prefill/server.h"

int main(int argc, char** argv) {
  moestro::TerminationSignal termination;
  moestro::prefill::PrefillConfig config;
  moestro::ProgramFlags flags{
      "moestro-prefill: the prefill role of a moestro node.\n"
      "Maps the weight store's segment and fills KV pages that decode has leased, one prompt at a time.\n"
      "MOESTRO_ISA=ref|avx2|avx_vnni|avx512|avx512_vnni|avx512_bf16|amx in the environment forces the kernels."};
  moestro::AddNodeOptions(flags, "prefill", config.node);
  moestro::AddCpuShare(flags, moestro::CpuRole::kPrefill, config.share);
  moestro::AddCpuOptions(flags, config.cpu);
  moestro::AddWords(
      flags, "--int8-activations", {moestro::kInt8ActivationsWords.begin(), moestro::kInt8ActivationsWords.end()},
      std::string(moestro::kInt8ActivationsWords[static_cast<size_t>(config.int8_activations)]),
      [&](size_t word) { config.int8_activations = static_cast<moestro::Int8Activations>(word); },
      std::string(moestro::kInt8ActivationsHelp))
      .Because("as the checkpoint's publisher computes");
  moestro::AddChoice(flags, "--prefill-activations", moestro::prefill::kPrefillActivationsWords, config.activations,
                     "Inputs of FP8 weights. bf16: exact; fp8: as such checkpoints are published, on this role's CPUs "
                     "too; auto: fp8 on GPUs that multiply it")
      .Because("exact, but on GPUs that multiply FP8");
  flags
      .Add("--chunk-tokens", config.chunk_tokens,
           "Tokens of one forward pass in place, at most 4096; bounds the activation memory. 0: as many as make "
           "reading the "
           "weights a tenth of a pass's time, as measured at the start, within 256 to 4096 and a GiB of buffers")
      .Because("found at the start");
  flags.Add("--queue-limit", config.queue_limit, "Prompts that may wait; further prompts are refused")
      .Because("a longer line would wait for hours");
  moestro::AddChoice(flags, "--mla-form", moestro::prefill::kMlaFormWords, config.mla_form.choice,
                     "absorbed: every path gives the same bits; unabsorbed; auto: un-absorbed for long prompts "
                     "(faster)")
      .Because("un-absorbed is faster for long prompts");
  flags
      .Add("--unabsorbed-from-tokens", config.mla_form.unabsorbed_from_tokens,
           "With --mla-form auto: shortest prompt that is computed un-absorbed")
      .Because("a constant of one model and machine, not measured on this one");
  moestro::prefill::StreamConfig& stream = config.stream;
  flags
      .Add("--device", stream.device,
           "Device that computes long prompts from weights streamed to it: none (computed in place), host or cuda:N")
      .Because("a GPU is used when somebody names it, as deploy/up does");
  flags
      .Add(
          "--devices", stream.devices,
          "Instead: several devices that share each long prompt: GPUs (0,1) or host,host; a list of one is as --device")
      .Because("a GPU is used when somebody names it, as deploy/up does");
  flags
      .Add("--borrow-device", stream.borrow_device,
           "Decode's device, named as in decode's --device, used besides the role's own: for prompts that may use the "
           "whole machine, while decode has no work")
      .Because("a GPU is used when somebody names it, as deploy/up does");
  flags
      .Add("--device-shares", stream.device_shares,
           "With several devices: how large their parts of a prompt are, as numbers in proportion to their speed "
           "(3,2), the "
           "borrowed device last; auto: measured at the start where GPUs are of different kinds, else equal")
      .Because("measured at the start where GPUs differ");
  moestro::AddChoice(
      flags, "--device-exchange", moestro::prefill::kDeviceExchangeWords, stream.device_exchange,
      "With several devices: what they exchange goes from GPU to GPU (peer), or through the host's memory "
      "(host); auto: peer where every GPU reaches all others (nvidia-smi topo -p2p r)")
      .Because("with a device, found at the start");
  flags
      .Add("--device-timeout-seconds", stream.device_timeout_seconds,
           "With several devices: one that the others wait for is dropped after this long without a sign of life")
      .Because("a constant of one model and machine: set it higher for slower links");
  moestro::AddChoice(flags, "--expert-parallel", moestro::prefill::kExpertParallelismWords, stream.expert_parallel,
                     "With several devices: small (SmallEP: all rows to all), or standard (a row to its experts), for "
                     "comparison")
      .Because("the paper's own; the other is for comparison");
  flags
      .Add("--device-memory", stream.memory_bytes,
           "Memory to use on each device (8GB); 0: all of a GPU's, 4 GiB of the host's")
      .AsBytes()
      .Because("with a device, found at the start");
  flags
      .Add("--device-dense-bytes", stream.dense_bytes,
           "Part of --device-memory for weights other than routed experts: those of a layer and the next")
      .AsBytes()
      .Because("two layers of the largest models");
  flags
      .Add("--device-pin-bytes", stream.pin_bytes,
           "At most this much of the weights is pinned for fast copies to a GPU (32GB); 0: all")
      .AsBytes()
      .Because("with a device, found at the start");
  flags.Add("--ring-slots", stream.ring_slots, "Experts in device memory at once; 0: as many as fit")
      .Because("with a device, found at the start");
  flags
      .Add("--min-pass-tokens", stream.min_pass_tokens,
           "Shortest pass into which a streamed prompt is cut; it is cut only where memory forces it")
      .Because("shorter passes read all experts for few tokens");
  flags
      .Add("--stream-from-tokens", stream.from_tokens,
           "Shortest prompt that is streamed, in new tokens, if the router does not say how (its --path-policy paper)")
      .Because("only where the roles have measured nothing");
  flags.Add("--trace-file", stream.trace_file, "Timeline of the last streamed prompt, for chrome://tracing")
      .Because("a timeline is for looking into one prompt");
  return moestro::RunRole(flags, argc, argv, "prefill", config.node, [&]() -> absl::Status {
    MOE_ASSIGN_OR_RETURN(config.lent_cpus, moestro::TakeCpuShare(config.share, moestro::CpuRole::kPrefill));
    MOE_RETURN_IF_ERROR(moestro::prefill::ValidatePrefillConfig(config));
    return moestro::prefill::RunPrefillServer(config, termination);
  });
}
