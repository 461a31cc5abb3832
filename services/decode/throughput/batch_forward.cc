#include "services/decode/throughput/batch_forward.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <string>
#include <utility>

#include "absl/strings/str_format.h"
#include "common/base/check.h"
#include "common/base/status.h"

namespace moestro::decode {
namespace {

// Of what is left beside the arrays of a step, the part for the cache, where the device attends.
constexpr int64_t kCacheShare = 2;
constexpr int64_t kMemoryAlignment = 4096;
// Of a step, and of those that forecasts choose from. Bounds lists: each is a task of every kind in every layer.
constexpr int64_t kMostMicroBatches = 256;
constexpr int64_t kMostForecast = 64;
// Lists that are kept: those of a forecast's choices, with the first layer there and without, and some more.
constexpr size_t kMostLists = 40;

// Bytes of the arrays of AttentionIo, one behind the other.
struct IoBytes {
  IoBytes(const weights::ModelSpec& spec, int64_t rows)
      : queries(RoundUp(rows * engine::AttentionIo::QueryWidth(spec) * 4, kMemoryAlignment)),
        entries(RoundUp(rows * spec.kv_dim() * 2, kMemoryAlignment)),
        outputs(RoundUp(rows * engine::AttentionIo::OutputWidth(spec) * 2, kMemoryAlignment)) {}
  int64_t total() const { return queries + entries + outputs; }
  int64_t queries;
  int64_t entries;
  int64_t outputs;
};

engine::AttentionIo IoAt(uint8_t* base, const IoBytes& bytes) {
  return {reinterpret_cast<float*>(base), reinterpret_cast<uint16_t*>(base + bytes.queries),
          reinterpret_cast<uint16_t*>(base + bytes.queries + bytes.entries)};
}

// A device's shares of all routed experts.
std::vector<engine::Module> ExpertModules(const weights::ModelSpec& spec, const model::ModelWeights& weights,
                                          int device, int devices) {
  std::vector<engine::Module> modules =
      engine::ListModules(spec, weights, model::MlaForm::kAbsorbed, /*head_bytes=*/int64_t{1} << 30);
  std::erase_if(modules, [](const engine::Module& module) { return module.kind != engine::ModuleKind::kExpert; });
  if (devices == 1) return modules;
  for (engine::Module& module : modules) {
    const auto& experts = weights.layers[static_cast<size_t>(module.layer)].feed_forward.experts;
    module.image = engine::ShareImage(experts[static_cast<size_t>(module.index)], device, devices);
  }
  return modules;
}

int64_t BlockBytes(const weights::ModelSpec& spec) {
  return kv::KvGeometry{.num_layers = 1, .kv_dim = spec.kv_dim(), .kv_heads = spec.num_kv_heads}.page_bytes();
}

absl::Status Copy(device::Stream& stream, auto* to, const auto* from, int64_t count, bool to_device) {
  auto* const target = reinterpret_cast<uint8_t*>(to);
  const auto* const source = reinterpret_cast<const uint8_t*>(from);
  const int64_t bytes = count * static_cast<int64_t>(sizeof(*from));
  return to_device ? stream.CopyToDevice(target, source, bytes) : stream.CopyToHost(target, source, bytes);
}

}  // namespace

// What a step's tasks are.
class BatchForward::Work final : public TaskWork {
 public:
  explicit Work(BatchForward& forward) : its_(forward) {}

  absl::Status Launch(const Task& task, device::Stream& stream) override {
    const auto part = static_cast<size_t>(task.part);
    switch (task.kind) {
      case TaskKind::kPreAttention:
        if (task.layer == 0 && task.part == 0) MOE_RETURN_IF_ERROR(its_.compute_->Embed(stream));
        return its_.compute_->PreAttention(task.layer, part, stream);
      case TaskKind::kAttend:
        return its_.compute_->Attend(task.layer, part, Caches(task.layer), stream);
      case TaskKind::kPostAttention:
        return its_.compute_->PostAttention(task.layer, part, stream);
      case TaskKind::kLoadPage:
        return LoadPage(task, stream);
      case TaskKind::kLoadCache:
        return LoadCache(task, stream);
      case TaskKind::kLoadOutputs:
        return LoadOutputs(part, stream);
      default:
        return Offload(part, stream);
    }
  }

  absl::Status Do(const Task& task) override {
    const auto part = static_cast<size_t>(task.part);
    if (task.kind == TaskKind::kStoreEntries) {
      its_.attention_.Store(task.layer, part);
    } else {
      its_.attention_.Run(task.layer, part);
    }
    return absl::OkStatus();
  }

 private:
  const std::vector<kv::KvPages>& Caches(int64_t layer) const {
    return its_.device_caches_[static_cast<size_t>(layer % 2)];
  }
  // Each device's part of the page over its own link, between what is before and behind the task on `stream`.
  absl::Status LoadPage(const Task& task, device::Stream& stream) {
    const size_t devices = its_.shares_.size();
    if (devices > 1) MOE_RETURN_IF_ERROR(stream.Record(*its_.page_begins_));
    for (size_t d = 1; d < devices; ++d) {
      MOE_RETURN_IF_ERROR(its_.LoadsOf(d).WaitFor(*its_.page_begins_));
      MOE_RETURN_IF_ERROR(LoadShare(task, its_.shares_[d], its_.LoadsOf(d)));
      MOE_RETURN_IF_ERROR(its_.LoadsOf(d).Record(*its_.shares_[d].loaded));
    }
    MOE_RETURN_IF_ERROR(LoadShare(task, its_.shares_[0], stream));
    for (size_t d = 1; d < devices; ++d) MOE_RETURN_IF_ERROR(stream.WaitFor(*its_.shares_[d].loaded));
    return absl::OkStatus();
  }
  absl::Status LoadShare(const Task& task, const Share& share, device::Stream& stream) {
    const WeightPages& pages = share.pages;
    const int64_t layer = task.layer == its_.spec_.num_layers ? pages.streamed().front() : task.layer;
    uint8_t* const place = share.layers.data() + its_.PlaceOf(task.layer) * pages.place_bytes();
    for (const engine::StagedRange& range : pages.Page(layer, task.part, its_.list_->shape.micro_batches)) {
      MOE_RETURN_IF_ERROR(stream.CopyToDevice(place + range.offset, range.source, range.bytes));
    }
    return absl::OkStatus();
  }
  // The blocks that have earlier tokens.
  absl::Status LoadCache(const Task& task, device::Stream& stream) {
    const int64_t bytes = BlockBytes(its_.spec_);
    const model::CheckedBatch& rows = its_.micro_batches_[static_cast<size_t>(task.part)].rows;
    for (const model::SequenceRun& run : rows.runs) {
      const kv::KvPages& device = Caches(task.layer)[static_cast<size_t>(rows.rows[run.begin].sequence)];
      const int64_t blocks = CeilDiv(rows.rows[run.begin].position, kv::kPageTokens);
      for (int64_t block = 0; block < blocks; ++block) {
        MOE_RETURN_IF_ERROR(stream.CopyToDevice(
            reinterpret_cast<uint8_t*>(device.Block(0, block)),
            reinterpret_cast<const uint8_t*>(rows.pages(run.begin).Block(task.layer, block)), bytes));
      }
    }
    return absl::OkStatus();
  }
  absl::Status LoadOutputs(size_t part, device::Stream& stream) {
    const engine::MicroBatch& batch = its_.micro_batches_[part];
    const int64_t width = engine::AttentionIo::OutputWidth(its_.spec_), first = batch.first_row * width;
    return Copy(stream, its_.device_io_.outputs + first, its_.host_io_.outputs + first, batch.rows.size() * width,
                /*to_device=*/true);
  }
  absl::Status Offload(size_t part, device::Stream& stream) {
    const engine::MicroBatch& batch = its_.micro_batches_[part];
    const auto copy = [&](auto* to, const auto* from, int64_t width) {
      return Copy(stream, to + batch.first_row * width, from + batch.first_row * width, batch.rows.size() * width,
                  /*to_device=*/false);
    };
    const engine::AttentionIo& host = its_.host_io_;
    MOE_RETURN_IF_ERROR(copy(host.entries, its_.device_io_.entries, its_.spec_.kv_dim()));
    if (its_.list_->attends_on_device) return absl::OkStatus();
    return copy(host.queries, its_.device_io_.queries, engine::AttentionIo::QueryWidth(its_.spec_));
  }

  BatchForward& its_;
};

BatchForward::BatchForward(const weights::ModelSpec& spec, const model::ModelWeights& weights,
                           const CpuKernels& kernels, WorkerPool& workers, const Options& options,
                           std::vector<Share> shares, device::PinnedBuffer<uint8_t> host_io)
    : spec_(spec),
      weights_(weights),
      options_(options),
      shares_(std::move(shares)),
      host_memory_(std::move(host_io)),
      host_io_(IoAt(host_memory_.get(), IoBytes(spec, options.max_rows))),
      on_device_(weights),
      attention_(spec, weights, kernels, workers, options.max_rows) {
  if (shares_.size() == 1) return;
  for (model::LayerWeights& layer : on_device_.layers) {
    layer.feed_forward.domain_experts.assign(shares_.size(), layer.feed_forward.experts);
  }
}

// As many experts stay on each as do on the one with the least room.
absl::StatusOr<std::vector<BatchForward::Share>> BatchForward::MakeShares(const weights::ModelSpec& spec,
                                                                          const model::ModelWeights& weights,
                                                                          std::span<device::Device* const> devices,
                                                                          int64_t first_bytes, int64_t other_bytes) {
  const auto count = static_cast<int>(devices.size());
  const int64_t groups = CeilDiv(std::max(spec.moe_intermediate_size, spec.hidden_size), kRowGroup);
  if (count > groups) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%d devices share experts whose matrices have at most %d groups of %d rows: one would have "
                        "none; use at most %d",
                        count, groups, kRowGroup, groups));
  }
  std::vector<std::vector<engine::Module>> modules;
  int64_t resident = std::numeric_limits<int64_t>::max();
  for (int d = 0; d < count; ++d) {
    modules.push_back(ExpertModules(spec, weights, d, count));
    MOE_ASSIGN_OR_RETURN(const int64_t most,
                         WeightPages::MostResident(modules.back(), d == 0 ? first_bytes : other_bytes));
    resident = std::min(resident, most);
  }
  std::vector<Share> shares;
  for (size_t d = 0; d < devices.size(); ++d) {
    shares.push_back({.device = devices[d], .pages = WeightPages(std::move(modules[d]), resident)});
  }
  return shares;
}

absl::StatusOr<std::unique_ptr<BatchForward>> BatchForward::Create(
    const weights::ModelSpec& spec, const model::ModelWeights& weights, const CpuKernels& kernels, WorkerPool& workers,
    std::span<device::Device* const> devices, const MakeCompute& make_compute, const Options& options) {
  MOE_CHECK(options.max_rows > 0 && !devices.empty());
  const IoBytes io(spec, options.max_rows);
  int64_t left = options.memory_bytes - io.total();
  if (left <= 0) {
    return absl::ResourceExhaustedError(
        absl::StrFormat("queries and outputs of %d rows take %d bytes of device memory, of which there are %d",
                        options.max_rows, io.total(), options.memory_bytes));
  }
  // Two places for caches, of whole blocks.
  const int64_t block = BlockBytes(spec);
  const int64_t cache_bytes = AttendsOnDevice(options.schedule) ? left / kCacheShare / 2 / block * block : 0;
  left -= 2 * cache_bytes;
  MOE_ASSIGN_OR_RETURN(std::vector<Share> shares, MakeShares(spec, weights, devices, left, options.memory_bytes));

  MOE_ASSIGN_OR_RETURN(auto host_io, device::PinnedBuffer<uint8_t>::Create(*devices[0], io.total()));
  std::unique_ptr<BatchForward> forward(
      new BatchForward(spec, weights, kernels, workers, options, std::move(shares), std::move(host_io)));
  MOE_ASSIGN_OR_RETURN(forward->pipeline_, BatchPipeline::Create(*devices[0]));
  MOE_RETURN_IF_ERROR(forward->MakeLoads());
  MOE_RETURN_IF_ERROR(forward->Allocate(cache_bytes));
  MOE_RETURN_IF_ERROR(forward->LoadResident());
  forward->PlaceExperts(0);
  MOE_ASSIGN_OR_RETURN(forward->compute_, make_compute(forward->on_device_));
  return forward;
}

absl::Status BatchForward::MakeLoads() {
  if (shares_.size() == 1) return absl::OkStatus();
  MOE_ASSIGN_OR_RETURN(page_begins_, shares_[0].device->NewEvent());
  for (size_t d = 1; d < shares_.size(); ++d) {
    Share& share = shares_[d];
    MOE_ASSIGN_OR_RETURN(share.loads, device::StagedStream::Create(*share.device, "batch load"));
    MOE_ASSIGN_OR_RETURN(share.loaded, share.device->NewEvent());
  }
  return absl::OkStatus();
}

absl::Status BatchForward::Allocate(int64_t cache_bytes) {
  const IoBytes io(spec_, options_.max_rows);
  device::Device& first = *shares_[0].device;
  MOE_ASSIGN_OR_RETURN(io_, first.Allocate(io.total(), "queries and outputs of attention"));
  device_io_ = IoAt(io_.data(), io);
  cache_bytes_ = cache_bytes;
  const auto allocate = [](device::Device& device, int64_t bytes, const char* what) -> absl::StatusOr<device::Memory> {
    if (bytes == 0) return device::Memory();
    return device.Allocate(bytes, what);
  };
  MOE_ASSIGN_OR_RETURN(caches_, allocate(first, 2 * cache_bytes, "caches of two micro-batches"));
  page_numbers_.resize(static_cast<size_t>(cache_bytes / BlockBytes(spec_)));
  std::iota(page_numbers_.begin(), page_numbers_.end(), 0);
  for (Share& share : shares_) {
    const WeightPages& pages = share.pages;
    MOE_ASSIGN_OR_RETURN(share.resident, allocate(*share.device, pages.resident_bytes(), "routed experts that stay"));
    MOE_ASSIGN_OR_RETURN(share.layers,
                         allocate(*share.device, 2 * pages.place_bytes(), "routed experts of two layers"));
  }
  return absl::OkStatus();
}

int64_t BatchForward::device_bytes(size_t device) const {
  const Share& share = shares_[device];
  return (device == 0 ? io_.bytes() + caches_.bytes() : 0) + share.resident.bytes() + share.layers.bytes();
}

int64_t BatchForward::streamed_bytes() const {
  int64_t bytes = 0;
  for (const Share& share : shares_) bytes += share.pages.streamed_bytes();
  return bytes;
}

int64_t BatchForward::cache_tokens() const {
  return AttendsOnDevice(options_.schedule) ? std::ssize(page_numbers_) * kv::kPageTokens
                                            : std::numeric_limits<int64_t>::max();
}

absl::Status BatchForward::LoadResident() {
  for (size_t d = 0; d < shares_.size(); ++d) {
    for (const WeightPages::Expert& expert : shares_[d].pages.places()) {
      if (!expert.resident) continue;
      uint8_t* const to = shares_[d].resident.data() + expert.offset;
      for (const engine::StagedRange& range : expert.module->image.ranges) {
        MOE_RETURN_IF_ERROR(LoadsOf(d).CopyToDevice(to + range.offset, range.source, range.bytes));
      }
    }
  }
  for (size_t d = 0; d < shares_.size(); ++d) MOE_RETURN_IF_ERROR(LoadsOf(d).Synchronize());
  return absl::OkStatus();
}

int64_t BatchForward::PlaceOf(int64_t layer) const {
  const std::vector<int64_t>& streamed = pages().streamed();
  return (first_place_ + (std::ranges::lower_bound(streamed, layer) - streamed.begin())) % 2;
}

void BatchForward::PlaceExperts(int64_t first_place) {
  first_place_ = first_place;
  const auto devices = static_cast<int>(shares_.size());
  for (int d = 0; d < devices; ++d) {
    const Share& share = shares_[static_cast<size_t>(d)];
    for (const WeightPages::Expert& expert : share.pages.places()) {
      const auto layer = static_cast<size_t>(expert.module->layer), index = static_cast<size_t>(expert.module->index);
      const uint8_t* const base =
          (expert.resident ? share.resident.data()
                           : share.layers.data() + PlaceOf(expert.module->layer) * share.pages.place_bytes()) +
          expert.offset;
      model::FeedForwardWeights& on_device = on_device_.layers[layer].feed_forward;
      if (devices == 1) {
        on_device.experts[index] = engine::StagedModule{expert.module, base}.Expert(weights_);
      } else {
        on_device.domain_experts[static_cast<size_t>(d)][index] = engine::StagedShare(
            weights_.layers[layer].feed_forward.experts[index], expert.module->image, base, d, devices);
      }
    }
  }
}

absl::Status BatchForward::Renew(const absl::Status& failure) {
  for (size_t d = 1; d < shares_.size(); ++d) (void)shares_[d].loads->Synchronize();  // its status has been seen
  const absl::Status renewed = MakeLoads();
  if (renewed.ok()) return failure;
  return absl::UnavailableError(absl::StrFormat("%s; a device is lost: %s", failure.message(), renewed.message()));
}

kv::KvPages BatchForward::DevicePages(const kv::KvPages& pages, int64_t blocks, uint8_t* base, int64_t first) const {
  kv::KvGeometry geometry = pages.geometry();
  geometry.num_layers = 1;
  return {geometry, base, std::span(page_numbers_).subspan(static_cast<size_t>(first), static_cast<size_t>(blocks))};
}

absl::Status BatchForward::CutIntoParts() {
  const std::vector<model::SequenceRun>& runs = batch_.runs;
  std::vector<int64_t> blocks;
  for (const model::SequenceRun& run : runs) blocks.push_back(batch_.rows[run.end - 1].position / kv::kPageTokens + 1);
  const bool whole = options_.schedule == BatchSchedule::kWholeLayer;
  BatchSize step;
  step.Add(batch_);
  const int64_t sequences = std::ssize(runs);
  const int64_t parts = whole ? 1 : chooses_ ? BestParts(sequences, step) : FixedParts(sequences);
  BatchingLimits limits{
      .micro_batches = parts, .sequences = CeilDiv(sequences, parts), .tokens = cache_tokens() / kv::kPageTokens};
  MicroBatches cut = CutIntoMicroBatches(blocks, limits);
  while (!cut.left_over.empty()) {
    if (whole || limits.micro_batches == std::min(sequences, kMostMicroBatches)) {
      // One that is too long by itself is too long whenever it comes again.
      const int64_t most = std::ranges::max(blocks) * kv::kPageTokens;
      const bool one_is_too_long = most > cache_tokens();
      std::string message = absl::StrFormat(
          "the device has room for the cache of %d tokens, and %s; take a schedule with attention on the host",
          cache_tokens(),
          one_is_too_long ? absl::StrFormat("one sequence has %d", most) : "all sequences together have more");
      return one_is_too_long ? absl::InvalidArgumentError(message) : absl::ResourceExhaustedError(message);
    }
    ++limits.micro_batches;
    cut = CutIntoMicroBatches(blocks, limits);
  }

  rows_.clear();
  rows_.reserve(batch_.rows.size());  // micro-batches have spans of it
  places_.resize(batch_.rows.size());
  micro_batches_.resize(cut.batches.size());
  const bool on_device = AttendsOnDevice(options_.schedule);
  for (std::vector<kv::KvPages>& caches : device_caches_) caches.assign(on_device ? batch_.sequences.size() : 0, {});
  for (size_t part = 0; part < cut.batches.size(); ++part) {
    engine::MicroBatch& micro = micro_batches_[part];
    micro = {.rows = {.rows = {}, .sequences = batch_.sequences, .runs = {}, .form = batch_.form},
             .first_row = std::ssize(rows_)};
    int64_t block = 0;
    for (const int32_t index : cut.batches[part]) {
      const model::SequenceRun& run = runs[static_cast<size_t>(index)];
      const int64_t begin = std::ssize(rows_) - micro.first_row;
      for (int64_t row = run.begin; row < run.end; ++row) {
        places_[static_cast<size_t>(row)] = std::ssize(rows_);
        rows_.push_back(batch_.rows[row]);
      }
      micro.rows.runs.push_back({begin, begin + run.end - run.begin});
      if (!on_device) continue;
      const int64_t count = blocks[static_cast<size_t>(index)];
      for (size_t layer = 0; layer < 2; ++layer) {
        const size_t place = (layer * cut.batches.size() + part) % 2;
        device_caches_[layer][static_cast<size_t>(batch_.rows[run.begin].sequence)] = DevicePages(
            batch_.pages(run.begin), count, caches_.data() + static_cast<int64_t>(place) * cache_bytes_, block);
      }
      block += count;
    }
    micro.rows.rows = std::span(rows_).subspan(static_cast<size_t>(micro.first_row));
  }
  return absl::OkStatus();
}

int64_t BatchForward::FixedParts(int64_t sequences) const {
  return std::min(CeilDiv(sequences, micro_batch_), kMostMicroBatches);
}

int64_t BatchForward::BestParts(int64_t sequences, const BatchSize& step) {
  if (options_.schedule == BatchSchedule::kWholeLayer) return 1;
  // Not all numbers, because each forecast walks a whole list.
  int64_t best = 1;
  double least = std::numeric_limits<double>::infinity();
  for (int64_t parts = 1; parts <= std::min(sequences, kMostForecast); parts += parts < 4 ? 1 : parts / 2) {
    const double seconds = costs_->Even(*ListOf(parts), step).seconds;
    if (seconds >= least) continue;
    best = parts;
    least = seconds;
  }
  return best;
}

StepForecast BatchForward::ForecastOf(int64_t sequences, int64_t tokens) {
  const BatchSize step{sequences, sequences * tokens, sequences * CeilDiv(tokens - 1, kv::kPageTokens)};
  const int64_t parts = chooses_ ? BestParts(sequences, step) : FixedParts(sequences);
  return costs_->Even(*ListOf(options_.schedule == BatchSchedule::kWholeLayer ? 1 : parts), step);
}

void BatchForward::Count() {
  MutexLock lock(mutex_);
  ++counts_.steps;
  counts_.micro_batches += std::ssize(micro_batches_);
  counts_.seconds += times_.seconds;
  counts_.forecast_seconds += forecast_.seconds;
  for (size_t r = 0; r < kResources; ++r) counts_.busy_seconds[r] += times_.busy[r];
  counts_.streamed_bytes += streamed_bytes();
}

BatchCounts BatchForward::counts() const {
  MutexLock lock(mutex_);
  return counts_;
}

std::shared_ptr<const TaskList> BatchForward::ListOf(int64_t micro_batches) {
  const std::pair key(micro_batches, first_is_there_);
  if (const auto found = lists_.find(key); found != lists_.end()) return found->second;
  auto list = std::make_shared<const TaskList>(ListTasks(options_.schedule, {.layers = spec_.num_layers,
                                                                             .streamed = pages().streamed(),
                                                                             .micro_batches = micro_batches,
                                                                             .first_is_there = first_is_there_}));
  MOE_CHECK(CheckTasks(*list).ok());
  if (lists_.size() >= kMostLists) lists_.clear();
  lists_.emplace(key, list);
  return list;
}

std::vector<BatchSize> BatchForward::Sizes() const {
  std::vector<BatchSize> sizes;
  for (const engine::MicroBatch& batch : micro_batches_) {
    sizes.emplace_back().Add(batch.rows);
  }
  return sizes;
}

absl::Status BatchForward::Forward(const model::ForwardBatch& batch, absl::FunctionRef<absl::Status()> interrupted,
                                   absl::FunctionRef<void(int64_t row, std::span<const float> logits)> on_logits) {
  MOE_RETURN_IF_ERROR(compute_->CheckForm(batch.form));
  MOE_RETURN_IF_ERROR(model::CheckBatch(spec_, max_rows(), batch, batch_));
  MOE_RETURN_IF_ERROR(CutIntoParts());
  list_ = ListOf(std::ssize(micro_batches_));
  forecast_ = costs_ ? costs_->Of(*list_, Sizes()) : StepForecast();
  compute_->Begin(micro_batches_, device_io_);
  attention_.Begin(micro_batches_, host_io_);
  Work work(*this);
  const absl::Status status = pipeline_->Run(*list_, work, interrupted, times_);
  first_is_there_ = status.ok() && !pages().streamed().empty();
  if (!status.ok()) return Renew(status);
  PlaceExperts((first_place_ + std::ssize(pages().streamed())) % 2);
  if (costs_) Count();
  const absl::Status logits = compute_->Logits(batch_.rows, places_, pipeline_->stream(), on_logits);
  if (logits.ok()) return logits;
  first_is_there_ = false;
  return pipeline_->Renew(logits);
}

}  // namespace moestro::decode
