// moestro-weight-store: packs a checkpoint into the shared weight segment and publishes it.

#include "common/base/status.h"
#include "common/process/flags.h"
#include "common/process/process.h"
#include "services/weight_store/server.h"

int main(int argc, char** argv) {
  moestro::TerminationSignal termination;
  moestro::store::StoreConfig config;
  moestro::ProgramFlags flags{
      "moestro-weight-store: the weight store of a moestro node.\n"
      "Reads a published checkpoint (safetensors or GGUF) once, packs it into one shared-memory segment that prefill "
      "and "
      "decode map\n"
      "read-only, and keeps it. Restarted after a crash, it adopts the segment without reading the checkpoint."};
  moestro::AddNodeOptions(flags, "weight_store", config.node);
  flags
      .Add("--model", config.model_dir,
           "Directory of the checkpoint (config.json, *.safetensors, tokenizer.json), a *.gguf file, or org/name of a "
           "model in the cache of Hugging Face's tools")
      .Required();
  flags
      .Add("--model-name", config.model_name,
           "Name that clients see; default: org/name, or the name of the directory or file")
      .Because("found at the start");
  moestro::AddCpuShare(flags, moestro::CpuRole::kAll, config.share);
  flags.Add("--threads", config.threads, "Packing threads; 0: one per CPU that the process may use")
      .Because("found at the start");
  flags
      .Add("--numa-domains", config.numa_domains,
           "Parts of the machine in which weights are placed, each near the CPUs that compute on it; 0: one per NUMA "
           "node. Use the same value for all roles of a node")
      .Because("found at the start");
  flags
      .AddSwitch("--keep-segment", config.keep_segment,
                 "On SIGTERM leave the segment in memory, for the next start to adopt")
      .Because("who stops a node expects its memory back");
  return moestro::RunRole(flags, argc, argv, "weight_store", config.node, [&]() -> absl::Status {
    MOE_RETURN_IF_ERROR(moestro::TakeCpuShare(config.share, moestro::CpuRole::kAll));
    MOE_RETURN_IF_ERROR(moestro::store::ValidateStoreConfig(config));
    return moestro::store::RunWeightStoreServer(config, termination);
  });
}
