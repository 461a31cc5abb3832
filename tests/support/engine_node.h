// An engine over a small synthetic model and its own KV pool, for tests of prefill and decode logic.
#pragma once

#include <unistd.h>

#include <memory>
#include <string>
#include <vector>

#include "common/kernels/cpu/kernels.h"
#include "common/kv/lease_writer.h"
#include "common/kv/pool.h"
#include "common/model/engine.h"
#include "common/platform/worker_pool.h"
#include "tests/support/synthetic_segment.h"
#include "tests/support/test_kernels.h"

namespace moestro {

inline constexpr char kTestFingerprint[] = "0123456789abcdef0123456789abcdef";

class EngineNode {
 public:
  // `nan_token`: as in SyntheticOptions. The pool's free pages are poisoned, whatever `pool` says.
  explicit EngineNode(int64_t max_rows = 64, int32_t nan_token = -1, int64_t page_count = 64,
                      const WorkerPool::Options& workers = {.threads = 2},
                      const weights::ModelSpec& model = SmallSpec(), kv::KvPoolOptions pool = {})
      : workers_(workers) {
    SyntheticOptions options;
    options.spec = model;
    options.nan_token = nan_token;
    segment_ = MakeSyntheticSegment(options);
    engine_ = model::Engine::Create(*segment_.segment, TestKernels(), workers_, {.max_rows = max_rows}).value();
    kv::KvGeometry geometry;
    geometry.num_layers = options.spec.num_layers;
    geometry.kv_dim = options.spec.kv_dim();
    geometry.kv_heads = options.spec.num_kv_heads;
    geometry.page_count = page_count;
    geometry.lease_slots = 128;
    pool.poison_freed = true;
    static int pools = 0;
    pool_ = kv::KvPool::Create("moestro.engine-node-" + std::to_string(getpid()) + ".kv." + std::to_string(++pools), 1,
                               {kTestFingerprint}, geometry, pool)
                .value();
    mapping_ = kv::KvPoolMapping::Open(pool_->name(), {kTestFingerprint}).value();
  }

  model::Engine& engine() { return *engine_; }
  const weights::WeightSegment& segment() const { return *segment_.segment; }
  // The same; release it before the node.
  std::shared_ptr<const weights::WeightSegment> shared_segment() const {
    return {segment_.segment.get(), [](const weights::WeightSegment*) {}};
  }
  WorkerPool& workers() { return workers_; }
  kv::KvPool& pool() { return *pool_; }
  const weights::ModelSpec& spec() const { return segment_.segment->spec(); }
  // Prefill's mapping.
  const std::shared_ptr<const kv::KvPoolMapping>& mapping() const { return mapping_; }
  // As in prefill: ABORTED if the lease is over.
  absl::StatusOr<std::unique_ptr<kv::LeaseWriter>> TryWriter(const KvLease& lease) const {
    return kv::LeaseWriter::Acquire(mapping_, lease.slot, lease.id, lease.pages);
  }
  std::unique_ptr<kv::LeaseWriter> Writer(const KvLease& lease) const { return TryWriter(lease).value(); }

 private:
  SyntheticSegment segment_;
  WorkerPool workers_;
  std::unique_ptr<model::Engine> engine_;
  std::unique_ptr<kv::KvPool> pool_;
  std::shared_ptr<const kv::KvPoolMapping> mapping_;
};

}  // namespace moestro
