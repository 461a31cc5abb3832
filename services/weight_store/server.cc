#include "services/weight_store/server.h"

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>

#include "common/base/status.h"
#include "common/rpc/channel.h"
#include "common/rpc/role_server.h"
#include "common/telemetry/log.h"
#include "services/weight_store/metrics.h"
#include "services/weight_store/store.h"
#include "services/weight_store/weight_store_rpc.h"

namespace moestro::store {
namespace {

static_assert(checkpoint::kMaxDocumentsBytes + (1 << 20) <= kMaxMessageBytes,
              "a reply holds the documents and little else");

v1::DescribeResponse Describe(const WeightStore& store) {
  v1::DescribeResponse reply;
  reply.set_model_name(store.config().model_name);
  reply.set_fingerprint(store.checkpoint().fingerprint());
  reply.set_family(store.spec().family);
  reply.set_max_context_tokens(static_cast<uint32_t>(store.spec().max_position_embeddings));
  reply.set_vocab_size(static_cast<uint32_t>(store.spec().token_count));
  reply.set_segment_bytes(store.segment_bytes());
  reply.set_config_json(store.checkpoint().documents().config_json);
  reply.set_tokenizer_json(store.checkpoint().documents().tokenizer_json);
  if (!store.checkpoint().documents().tiktoken_ranks.empty()) {
    reply.set_tiktoken_ranks(store.checkpoint().documents().tiktoken_ranks);
    reply.set_tokenizer_config_json(store.checkpoint().documents().tokenizer_config_json);
  }
  const checkpoint::GenerationDefaults& defaults = store.defaults();
  reply.mutable_stop_ids()->Assign(defaults.stop_ids.begin(), defaults.stop_ids.end());
  reply.set_default_temperature(static_cast<float>(defaults.temperature));
  reply.set_default_top_p(static_cast<float>(defaults.top_p));
  reply.set_default_top_k(defaults.top_k);
  reply.set_default_min_p(static_cast<float>(defaults.min_p));
  reply.set_default_repetition_penalty(static_cast<float>(defaults.repetition_penalty));
  reply.set_sampling_source(defaults.sampling_source);
  reply.set_default_max_tokens(static_cast<uint32_t>(defaults.max_new_tokens));
  reply.set_bos_token(defaults.bos_token);
  reply.set_eos_token(defaults.eos_token);
  reply.set_chat_template(defaults.chat_template);
  reply.set_tool_use_template(defaults.tool_use_template);
  reply.set_add_bos_token(defaults.add_bos_token);
  return reply;
}

// Logs the progress of the load every two seconds.
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
    LogInfo("{}: {:.1f} of {:.1f} GiB ({} %)", what, static_cast<double>(done) / kGib,
            static_cast<double>(total) / kGib, 100 * done / total);
  }

  std::chrono::steady_clock::time_point told_ = std::chrono::steady_clock::now();
};

// The members stand in the order of their dependencies.
class WeightStoreServer {
 public:
  WeightStoreServer(WeightStore& store, TerminationSignal& termination)
      : store_(store),
        registry_("weight_store"),
        metrics_(registry_),
        rpc_(registry_, Describe(store), state_, metrics_),
        server_("weight_store", store.config().node, registry_, termination) {
    registry_.SetModelName(store.config().model_name);
  }

  absl::Status Run() {
    MOE_RETURN_IF_ERROR(server_.BuildAndStart({{v1::WeightStoreService::service_full_name(), &rpc_}}));
    server_.Watch(store_.heartbeat());
    std::thread loader([this] {
      load_status_ = store_.Load(
          state_, [this] { return terminated_ ? absl::CancelledError("terminated while loading") : absl::OkStatus(); });
      load_done_ = true;
    });
    const absl::Status ended = server_.Tick(kTick, [this] { return Tick(); });
    terminated_ = true;
    loader.join();
    state_.Close();
    server_.Drain(std::chrono::seconds(1));  // only leases remain, and they have just ended
    store_.Remove();
    return ended.ok() ? load_status_ : ended;
  }

 private:
  static constexpr std::chrono::milliseconds kTick{100};

  absl::Status Tick() {
    const LoadState::Snapshot snapshot = state_.Get();
    progress_.Tell(snapshot);
    UpdateMetrics(snapshot);
    if (serving_ && store_.damaged()) {
      return absl::UnavailableError("the weight segment is damaged; the next start loads a new one");
    }
    if (!load_done_ || serving_) return absl::OkStatus();
    MOE_RETURN_IF_ERROR(load_status_);
    serving_ = true;
    metrics_.huge_page_bytes.Set(static_cast<double>(store_.huge_page_bytes()));
    server_.rpc().SetServing(true);
    LogInfo("ready");
    return absl::OkStatus();
  }

  void UpdateMetrics(const LoadState::Snapshot& snapshot) {
    const bool ready = snapshot.phase == LoadState::Phase::kReady;
    const auto total_bytes = static_cast<double>(snapshot.total_bytes);
    metrics_.load_ratio.Set(total_bytes == 0 ? 0 : static_cast<double>(snapshot.loaded_bytes) / total_bytes);
    metrics_.ready.Set(ready ? 1 : 0);
    metrics_.segment_bytes.Set(ready ? static_cast<double>(store_.segment_bytes()) : 0);
    metrics_.load_seconds.Set(ready ? store_.load_seconds() : 0);
  }

  WeightStore& store_;
  MetricsRegistry registry_;
  StoreMetrics metrics_;
  LoadState state_;
  ProgressLog progress_;
  bool serving_ = false;
  std::atomic<bool> terminated_{false};
  std::atomic<bool> load_done_{false};
  absl::Status load_status_;  // written before load_done_
  WeightStoreRpc rpc_;
  RoleServer server_;
};

}  // namespace

absl::Status RunWeightStoreServer(const StoreConfig& config, TerminationSignal& termination) {
  MOE_ASSIGN_OR_RETURN(const std::unique_ptr<WeightStore> store, WeightStore::Open(config));
  return WeightStoreServer(*store, termination).Run();
}

}  // namespace moestro::store
