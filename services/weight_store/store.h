// The weight store's logic: turns a checkpoint directory into a READY segment, by packing it or by adopting a
// predecessor's segment.
#pragma once

#include <memory>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "common/base/heartbeat.h"
#include "common/checkpoint/checkpoint.h"
#include "common/checkpoint/config.h"
#include "common/checkpoint/segment_plan.h"
#include "common/weights/segment_writer.h"
#include "services/weight_store/config.h"
#include "services/weight_store/load_state.h"

namespace moestro::store {

class WeightStore {
 public:
  // Opens and validates the checkpoint: config, tokenizer ids, every tensor's name, dtype and shape. Allocates nothing
  // and reads no tensor data. Errors name file and tensor.
  static absl::StatusOr<std::unique_ptr<WeightStore>> Open(const StoreConfig& config);

  // Makes the segment READY or FAILED, and reports it to `state`. Blocks; calls `interrupted` while packing. First
  // removes dead segments of this instance.
  absl::Status Load(LoadState& state, absl::FunctionRef<absl::Status()> interrupted);

  // After Load: whether a role met a memory fault in the segment. Only a new process loads it again.
  bool damaged() const;

  // Unlinks the segment. No effect before Load, or with keep_segment if the segment is not damaged.
  void Remove();

  // Of Load: beats whenever it has reserved or packed some MB.
  std::shared_ptr<const Heartbeat> heartbeat() const { return heartbeat_; }

  const checkpoint::Checkpoint& checkpoint() const { return checkpoint_; }
  const weights::ModelSpec& spec() const { return spec_; }
  const checkpoint::GenerationDefaults& defaults() const { return defaults_; }
  const StoreConfig& config() const { return config_; }
  int64_t segment_bytes() const;
  double load_seconds() const { return load_seconds_; }  // 0 if adopted
  int64_t huge_page_bytes() const;

 private:
  WeightStore(StoreConfig config, checkpoint::Checkpoint checkpoint, weights::ModelSpec spec,
              checkpoint::GenerationDefaults defaults, checkpoint::Plan plan);
  absl::Status AdoptOrRemoveOld(uint64_t& next_generation);
  absl::Status Pack(LoadState& state, uint64_t generation, absl::FunctionRef<absl::Status()> interrupted);

  const StoreConfig config_;
  const checkpoint::Checkpoint checkpoint_;
  const weights::ModelSpec spec_;
  const checkpoint::GenerationDefaults defaults_;
  const checkpoint::Plan plan_;
  std::unique_ptr<weights::SegmentWriter> writer_;
  std::string segment_name_;
  double load_seconds_ = 0;
  const std::shared_ptr<Heartbeat> heartbeat_ = std::make_shared<Heartbeat>("the load");
};

}  // namespace moestro::store
