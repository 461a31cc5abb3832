#include "services/weight_store/server.h"

#include <spdlog/spdlog.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <utility>

#include "common/base/status.h"
#include "common/platform/process_memory.h"
#include "common/rpc/channel.h"
#include "common/rpc/process.h"
#include "common/rpc/server.h"
#include "common/telemetry/metrics.h"
#include "services/weight_store/store.h"
#include "services/weight_store/store_metrics.h"
#include "services/weight_store/weight_store_rpc.h"

namespace moestro {
namespace {

static_assert(kMaxDocumentsBytes + (1 << 20) <= kMaxMessageBytes, "a reply holds documents and little else");

v1::DescribeReply Describe(const WeightStore& store) {
  v1::DescribeReply reply;
  reply.set_model_name(store.config().model_name);
  reply.set_fingerprint(store.checkpoint().fingerprint());
  reply.set_family(store.spec().family);
  reply.set_max_context_tokens(static_cast<uint32_t>(store.spec().max_position_embeddings));
  reply.set_vocab_size(static_cast<uint32_t>(store.spec().token_count));
  reply.set_segment_bytes(store.segment_bytes());
  reply.set_config_json(store.checkpoint().documents().config_json);
  reply.set_tokenizer_json(store.checkpoint().documents().tokenizer_json);
  const GenerationDefaults& defaults = store.defaults();
  reply.mutable_stop_ids()->Assign(defaults.stop_ids.begin(), defaults.stop_ids.end());
  reply.set_default_temperature(defaults.do_sample ? static_cast<float>(defaults.temperature) : 0.0f);
  reply.set_default_top_p(static_cast<float>(defaults.top_p));
  reply.set_default_top_k(defaults.top_k);
  reply.set_bos_token(defaults.bos_token);
  reply.set_eos_token(defaults.eos_token);
  reply.set_chat_template(defaults.chat_template);
  reply.set_add_bos_token(defaults.add_bos_token);
  return reply;
}

// Says on the terminal how far the load is, every two seconds.
class ProgressLog {
 public:
  void Tell(const LoadState::Snapshot& snapshot) {
    const auto now = std::chrono::steady_clock::now();
    if (snapshot.phase != LoadState::Phase::kLoading || now - told_ < std::chrono::seconds(2)) return;
    told_ = now;
    if (snapshot.total_bytes > 0) {
      Tell("loading", snapshot.loaded_bytes, snapshot.total_bytes);
    } else if (snapshot.segment_bytes > 0) {
      Tell("reserving memory", snapshot.reserved_bytes, snapshot.segment_bytes);
    }
  }

 private:
  static void Tell(const char* what, int64_t done, int64_t total) {
    constexpr double kGib = 1 << 30;
    spdlog::info("{}: {:.1f} of {:.1f} GiB ({} %)", what, static_cast<double>(done) / kGib,
                 static_cast<double>(total) / kGib, 100 * done / total);
  }

  std::chrono::steady_clock::time_point told_ = std::chrono::steady_clock::now();
};

void UpdateMetrics(const WeightStore& store, const LoadState::Snapshot& snapshot, StoreMetrics& metrics) {
  const bool ready = snapshot.phase == LoadState::Phase::kReady;
  metrics.load_ratio.Set(snapshot.total_bytes == 0
                             ? 0
                             : static_cast<double>(snapshot.loaded_bytes) / static_cast<double>(snapshot.total_bytes));
  metrics.ready.Set(ready ? 1 : 0);
  metrics.segment_bytes.Set(ready ? static_cast<double>(store.segment_bytes()) : 0);
  metrics.load_seconds.Set(ready ? store.load_seconds() : 0);
  if (const auto bytes = ReadAnonymousBytes(); bytes.ok()) {
    metrics.private_bytes.Set(static_cast<double>(*bytes));
  }
}

}  // namespace

absl::Status RunWeightStoreServer(const StoreConfig& config, TerminationSignal& termination) {
  MOE_ASSIGN_OR_RETURN(const std::unique_ptr<WeightStore> store, WeightStore::Open(config));
  MetricsRegistry registry("weight_store");
  StoreMetrics metrics(registry);
  registry.SetModelName(config.model_name);
  if (!config.node.metrics_address.empty()) MOE_RETURN_IF_ERROR(registry.Serve(config.node.metrics_address));
  LoadState state;
  WeightStoreRpc rpc(Describe(*store), state, metrics);
  MOE_ASSIGN_OR_RETURN(
      const std::unique_ptr<RpcServer> server,
      RpcServer::Start({RoleAddress(config.node, "weight_store")}, {{v1::WeightStore::service_full_name(), &rpc}}));

  std::atomic<bool> terminated{false};
  std::atomic<bool> load_done{false};
  absl::Status load_status;
  std::thread loader([&] {
    load_status = store->Load(
        state, [&] { return terminated ? absl::CancelledError("terminated while loading") : absl::OkStatus(); });
    load_done = true;
  });

  constexpr std::chrono::milliseconds kTick(100);
  ProgressLog progress;
  bool serving = false;
  while (!termination.WaitFor(kTick)) {
    const LoadState::Snapshot snapshot = state.Get();
    progress.Tell(snapshot);
    UpdateMetrics(*store, snapshot, metrics);
    if (snapshot.phase == LoadState::Phase::kFailed) break;
    if (load_done && !serving) {
      serving = true;
      metrics.huge_page_bytes.Set(static_cast<double>(store->huge_page_bytes()));
      server->SetServing(true);
      spdlog::info("ready");
    }
  }
  terminated = true;
  loader.join();
  state.Close();
  server->Drain(std::chrono::seconds(1));
  store->Remove();
  return absl::IsCancelled(load_status) ? absl::OkStatus() : load_status;
}

}  // namespace moestro
