#include "services/weight_store/store.h"

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/exceptions.h"
#include "common/base/status.h"
#include "common/checkpoint/inventory.h"
#include "common/checkpoint/texts.h"
#include "common/platform/bandwidth.h"
#include "common/platform/cgroup_cpu.h"
#include "common/platform/instance.h"
#include "common/platform/numa.h"
#include "common/platform/shared_memory.h"
#include "common/telemetry/log.h"
#include "services/weight_store/pack/packer.h"

namespace moestro::store {
namespace {

constexpr double kGib = 1 << 30;

// A smaller load is too short for its rate to be meaningful.
constexpr int64_t kMeasuredLoadBytes = int64_t{256} << 20;

class Stopwatch {
 public:
  double Seconds() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }

 private:
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// "moestro.<instance>.weights.<fingerprint>.<generation>" -> generation; 0 if there is none.
uint64_t GenerationOf(const std::string& name) {
  const size_t dot = name.rfind('.');
  return dot == std::string::npos ? 0 : std::strtoull(name.c_str() + dot + 1, nullptr, 10);
}

// Empty if weights lie anywhere.
std::vector<NumaDomain> DomainsOfWeights(int wanted) {
  absl::StatusOr<std::vector<NumaDomain>> domains = DomainsToPlaceIn(wanted);
  if (domains.ok()) return *std::move(domains);
  LogWarning(
      "weights cannot be placed by NUMA node ({}): half of the reads or more will cross nodes; a container "
      "needs the capability SYS_NICE",
      std::string(domains.status().message()));
  return {};
}

}  // namespace

WeightStore::WeightStore(StoreConfig config, checkpoint::Checkpoint checkpoint, weights::ModelSpec spec,
                         checkpoint::GenerationDefaults defaults, checkpoint::Plan plan)
    : config_(std::move(config)),
      checkpoint_(std::move(checkpoint)),
      spec_(spec),
      defaults_(std::move(defaults)),
      plan_(std::move(plan)) {}

absl::StatusOr<std::unique_ptr<WeightStore>> WeightStore::Open(const StoreConfig& config) {
  MOE_ASSIGN_OR_RETURN(checkpoint::Checkpoint checkpoint, checkpoint::Checkpoint::Open(config.model_dir));
  const checkpoint::CheckpointDocuments& documents = checkpoint.documents();
  MOE_ASSIGN_OR_RETURN(weights::ModelSpec spec,
                       checkpoint::ParseModelSpec(documents.config_json, documents.tokenizer_json));
  MOE_ASSIGN_OR_RETURN(checkpoint::GenerationDefaults defaults,
                       checkpoint::ParseGenerationDefaults(documents, spec.vocab_size));
  std::vector<std::string> warnings = checkpoint.warnings();
  MOE_ASSIGN_OR_RETURN(spec.token_count, checkpoint::CheckTexts(documents, defaults, spec, &warnings));
  std::vector<checkpoint::SkippedTensors> skipped;
  MOE_ASSIGN_OR_RETURN(const std::vector<checkpoint::InventoryItem> inventory,
                       checkpoint::CheckInventory(checkpoint, spec, &warnings, &skipped));
  for (const std::string& warning : warnings) LogWarning("{}", warning);
  for (const checkpoint::SkippedTensors& group : skipped) {
    LogInfo("{}: left out: {}: {} tensor(s), {:.2f} GiB", config.model_name, group.group, group.tensors,
            static_cast<double>(group.bytes) / kGib);
  }
  MOE_ASSIGN_OR_RETURN(checkpoint::Plan plan, checkpoint::MakePlan(inventory, spec));
  LogInfo("{}: {}, {:.3f} B parameters, {:.2f} GiB on disk, fingerprint {}", config.model_name, spec.family,
          static_cast<double>(model::ParameterCount(spec)) / 1e9, static_cast<double>(checkpoint.total_bytes()) / kGib,
          checkpoint.fingerprint());
  if (spec.tied_head != 0) {
    LogInfo("{}: the embedding is the head, too, and is packed a second time: {:.2f} GiB", config.model_name,
            static_cast<double>(checkpoint::HeadBytes(plan.tensors)) / kGib);
  }
  return std::unique_ptr<WeightStore>(
      new WeightStore(config, std::move(checkpoint), spec, std::move(defaults), std::move(plan)));
}

int64_t WeightStore::segment_bytes() const { return weights::SegmentWriter::RequiredBytes(plan_.tensors); }

// Adopts a READY segment of this checkpoint that a predecessor left, and removes every other segment.
absl::Status WeightStore::AdoptOrRemoveOld(uint64_t& next_generation) {
  std::vector<std::string> foreign;
  MOE_ASSIGN_OR_RETURN(const auto found,
                       SharedMemory::List(InstancePrefix(config_.node.instance) + "weights.", &foreign));
  for (const std::string& line : foreign) LogWarning("{}", line);
  for (const SharedMemory::Listing& object : found) {
    heartbeat_->Beat();  // freeing a segment of hundreds of GB takes a while
    next_generation = std::max(next_generation, GenerationOf(object.name) + 1);
    if (writer_ == nullptr) {
      absl::StatusOr<std::unique_ptr<weights::SegmentWriter>> adopted =
          weights::SegmentWriter::Adopt(object.name, checkpoint_.fingerprint());
      if (adopted.ok()) {
        LogInfo("adopted {}: {:.2f} GiB, nothing to load", object.name, static_cast<double>(object.bytes) / kGib);
        writer_ = std::move(*adopted);
        segment_name_ = object.name;
        continue;
      }
      LogInfo("{} cannot be adopted: {}", object.name, std::string(adopted.status().message()));
    }
    // The listing does not decide: another store may have adopted the segment since, or begun to create it.
    const absl::Status removed = SharedMemory::UnlinkOrphan(object.name);
    if (absl::IsFailedPrecondition(removed)) {
      return absl::UnavailableError("instance '" + config_.node.instance + "' already has a weight store (it owns " +
                                    object.name + "); choose another --instance");
    }
    MOE_RETURN_IF_ERROR(removed);
    LogInfo("removed {}", object.name);
  }
  return absl::OkStatus();
}

absl::Status WeightStore::Load(LoadState& state, absl::FunctionRef<absl::Status()> interrupted) {
  const BeatingScope beating(*heartbeat_);
  const absl::Status status = CatchExceptions([&]() -> absl::Status {
    uint64_t generation = 1;
    absl::Status packed = absl::AlreadyExistsError("");
    while (absl::IsAlreadyExists(packed)) {
      MOE_RETURN_IF_ERROR(AdoptOrRemoveOld(generation));
      packed = writer_ == nullptr ? Pack(state, generation, interrupted) : absl::OkStatus();
      // Another user has taken the name: use one that nobody can take beforehand.
      generation = static_cast<uint64_t>(std::chrono::system_clock::now().time_since_epoch().count());
    }
    return packed;
  });
  if (status.ok()) {
    state.Ready(segment_name_, segment_bytes());
  } else {
    Remove();
    state.Failed(std::string(status.message()));
  }
  return status;
}

absl::Status WeightStore::Pack(LoadState& state, uint64_t generation, absl::FunctionRef<absl::Status()> interrupted) {
  const int threads = config_.threads > 0 ? config_.threads : UsableCpus();
  if (config_.threads == 0) config_.node.settings->Derive("threads", absl::StrCat(threads), "the CPUs it may use");
  const std::string name = WeightSegmentName(config_.node.instance, checkpoint_.fingerprint(), generation);
  LogInfo("reserving {:.2f} GiB of shared memory, {}", static_cast<double>(segment_bytes()) / kGib, name);
  weights::SegmentMemoryOptions memory;
  memory.threads = threads;
  memory.domains = DomainsOfWeights(config_.numa_domains);
  if (config_.numa_domains == 0) {
    config_.node.settings->Derive("numa-domains", absl::StrCat(std::max<size_t>(1, memory.domains.size())),
                                  "the NUMA nodes in which memory can be placed");
  }
  if (!memory.domains.empty()) LogInfo("placing weights in {} NUMA domains", memory.domains.size());
  memory.watch = [&](int64_t bytes) {
    heartbeat_->Beat();
    state.Reserved(bytes, segment_bytes());
    return interrupted();
  };
  const Stopwatch watch;
  MOE_ASSIGN_OR_RETURN(writer_, weights::SegmentWriter::Create(name, generation, checkpoint_.fingerprint(), spec_,
                                                               plan_.tensors, memory));
  segment_name_ = name;
  const double reserve_seconds = watch.Seconds();
  PackOptions options;
  options.threads = threads;
  options.progress = [&](int64_t done, int64_t total) { state.Progress(done, total); };
  options.interrupt = [&] {
    heartbeat_->Beat();
    return interrupted();
  };
  MOE_RETURN_IF_ERROR(PackCheckpoint(checkpoint_, plan_, *writer_, options));
  load_seconds_ = watch.Seconds();
  const double pack_seconds = load_seconds_ - reserve_seconds;
  const double rate = static_cast<double>(checkpoint_.total_bytes()) / pack_seconds;
  LogInfo(
      "loaded {:.2f} GiB in {:.2f} s: {:.2f} s to reserve memory, {:.2f} s to pack at {:.2f} GB/s; {:.1f} % of "
      "the segment is in huge pages",
      static_cast<double>(segment_bytes()) / kGib, load_seconds_, reserve_seconds, pack_seconds, rate / 1e9,
      100.0 * static_cast<double>(huge_page_bytes()) / static_cast<double>(segment_bytes()));
  if (checkpoint_.total_bytes() >= kMeasuredLoadBytes) {
    heartbeat_->Beat();
    const absl::StatusOr<double> copy = MeasureCopyBandwidth(threads);
    const absl::StatusOr<double> disk = MeasureReadRate(checkpoint_.shards().front().path());
    if (copy.ok() && disk.ok()) {
      LogInfo(
          "ceilings: copy bandwidth {:.2f} GB/s, disk read {:.2f} GB/s; packing ran at {:.2f} of the lower, "
          "{:.2f} of the copy bandwidth",
          *copy / 1e9, *disk / 1e9, rate / std::min(*copy, *disk), rate / *copy);
    }
  }
  return absl::OkStatus();
}

bool WeightStore::damaged() const { return writer_ != nullptr && writer_->memory().damaged(); }

void WeightStore::Remove() {
  if (segment_name_.empty() ||
      (config_.keep_segment && writer_ != nullptr && !damaged() &&
       writer_->header().state.load() == static_cast<uint32_t>(weights::SegmentState::kReady))) {
    return;
  }
  if (const absl::Status status = SharedMemory::Unlink(segment_name_); !status.ok())
    LogWarning("{}", status.ToString());
  segment_name_.clear();
}

int64_t WeightStore::huge_page_bytes() const { return writer_ == nullptr ? 0 : writer_->memory().HugePageBytes(); }

}  // namespace moestro::store
