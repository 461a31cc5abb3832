#include "services/prefill/distributed/rank_compute.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "common/base/check.h"
#include "common/base/status.h"
#include "common/collective/shared/region.h"
#include "common/kv/format.h"

namespace moestro::prefill {

using engine::StepKind;

using collective::Call;

static_assert(ZigZagSplit::kStripes == engine::RankShare::kStripes &&
              collective::kMaxRanks <= engine::kMaxRanksOfPrompt);

namespace {

// Keys and values of a layer, whole blocks.
int64_t KvBytes(const weights::ModelSpec& spec, const RankRun& run) {
  return RoundUp(run.split->end(), kv::kPageTokens) * 2 * spec.kv_dim();
}

}  // namespace

engine::RankShare RankRun::share() const {
  engine::RankShare share;
  share.rows = rows;
  share.stripes = split->Stripes(rank);
  share.end = split->end();
  share.rank = rank;
  share.parts = split->parts();
  share.form = form;
  share.spare_bytes = spare_bytes;
  if (pages != nullptr) share.pages = pages->pages();
  share.part_tokens = kv::kPageTokens;
  for (int of = 0; of < ranks(); ++of) {
    int64_t blocks = 0;
    for (const IndexRange& stripe : split->Stripes(of)) blocks += BlocksOf(stripe).size();
    if (share.parts.share(of) <= share.parts.share(rank)) {
      share.part_tokens = std::max(share.part_tokens, blocks * kv::kPageTokens);
    }
    share.rank_rows.push_back(split->Rows(of));
  }
  return share;
}

int64_t RankBytes(const weights::ModelSpec& spec, const engine::RankKernels& kernels,
                  roofline::ExpertParallelism experts, const RankRun& run) {
  const auto exchange_bytes = experts == roofline::ExpertParallelism::kSmall ? SmallEpBytes : StandardEpBytes;
  return kernels.ActivationBytes(run.share()) + KvBytes(spec, run) + exchange_bytes(spec, run);
}

absl::Status RankCompute::Begin(const RankRun& run) {
  run_ = run;
  MOE_RETURN_IF_ERROR(kernels_.Begin(run_.share()));
  MOE_RETURN_IF_ERROR(experts_.Begin(run_));
  MOE_ASSIGN_OR_RETURN(kv_, device_.Allocate(KvBytes(spec_, run_), "keys and values of a layer"));
  MOE_ASSIGN_OR_RETURN(before_, device_.NewEvent());
  MOE_ASSIGN_OR_RETURN(projected_, device_.NewEvent());
  prefix_layer_ = -1;
  if (stores()) {
    prefix_.resize(static_cast<size_t>(run_.split->begin() * token_bytes()));
    for (std::vector<uint8_t>& rows : stored_) rows.resize(static_cast<size_t>(run_.own_rows() * token_bytes()));
  }
  return exchanges_.Begin();
}

void RankCompute::End() {
  exchanges_.End();
  before_.reset();
  projected_.reset();
  kv_ = device::Memory();
  experts_.End();
  kernels_.End();
}

absl::Status RankCompute::Launch(const engine::LayerStep& step, std::span<const engine::StagedModule> modules,
                                 device::Stream& stream, const std::atomic<bool>& stopped) {
  // Kernels that have not begun are skipped when the run has stopped; those that are done are a sign of life.
  const auto launch = [&](device::Kernel kernel) {
    if (kernel.run) {
      kernel.run = [this, run = std::move(kernel.run), layer = step.layer, &stopped](void* native) -> absl::Status {
        if (stopped) return absl::CancelledError("the run has been given up");
        MOE_RETURN_IF_ERROR(Annotate(run(native), absl::StrFormat("layer %d", layer)));
        communicator_.Beat();
        return absl::OkStatus();
      };
    }
    return stream.Launch(std::move(kernel));
  };
  const auto move_residuals = [&] {
    return MoveResiduals(spec_, step, run_.first_layer, run_.residuals, kernels_.residuals(), stream);
  };
  const RankStep rank_step{step.layer, stream, stopped, launch};
  switch (step.kind) {
    case StepKind::kAttention:
      return Attention(modules[0], rank_step);
    case StepKind::kRoute:
      return experts_.Route(modules[0], rank_step);
    case StepKind::kDispatch:
      return experts_.Dispatch(rank_step);
    case StepKind::kExperts:
      return experts_.Experts(modules, step.rows, rank_step);
    case StepKind::kCombine:
      MOE_RETURN_IF_ERROR(experts_.Combine(modules[0], rank_step));
      return move_residuals();
    case StepKind::kEmbed:
      MOE_RETURN_IF_ERROR(launch(kernels_.Embed()));
      return move_residuals();
    case StepKind::kDense:
      MOE_RETURN_IF_ERROR(launch(kernels_.Dense(modules[0])));
      return move_residuals();
    case StepKind::kSharedExpert:
      return launch(kernels_.SharedExpert(modules[0]));
    case StepKind::kHead:
      return launch(kernels_.Head(modules[0]));
  }
  MOE_CHECK(false);
  return absl::OkStatus();
}

absl::StatusOr<std::vector<float>> RankCompute::Residuals() {
  std::vector<float> residuals(static_cast<size_t>(run_.own_rows() * spec_.hidden_size));
  if (residuals.empty()) return residuals;
  MOE_ASSIGN_OR_RETURN(const std::unique_ptr<device::Stream> stream, device_.NewStream("residuals"));
  MOE_RETURN_IF_ERROR(stream->CopyToHost(reinterpret_cast<uint8_t*>(residuals.data()),
                                         reinterpret_cast<const uint8_t*>(kernels_.residuals()),
                                         std::ssize(residuals) * static_cast<int64_t>(sizeof(float))));
  MOE_RETURN_IF_ERROR(stream->Synchronize());
  return residuals;
}

absl::Status RankCompute::Attention(const engine::StagedModule& module, const RankStep& step) {
  const auto start = [&](const char* what, device::Event* after, std::function<absl::Status(const Call&)> work) {
    return exchanges_.Start({what, step.layer, after, std::move(work)});
  };
  const auto wait_for = [&](int64_t exchange) { return exchanges_.WaitFor(exchange, step.stream, step.stopped); };
  const int64_t layer = step.layer, passes = run_.ranks();
  const bool has_prefix = run_.split->begin() > 0 && stores();

  // kv_ is the layer's now: the one before has been attended to.
  MOE_RETURN_IF_ERROR(step.stream.Record(*before_));
  int64_t loaded = -1;
  if (has_prefix) {
    loaded =
        start("load prefix", before_.get(), [this, layer](const Call& call) { return LoadPrefix(layer, call.stream); });
  }
  MOE_RETURN_IF_ERROR(step.launch(kernels_.ProjectKv(module, kv())));
  MOE_RETURN_IF_ERROR(step.stream.Record(*projected_));
  std::vector<int64_t> received(static_cast<size_t>(passes), loaded);  // by pass
  for (int64_t pass = 1; pass < passes; ++pass) {
    received[static_cast<size_t>(pass)] =
        start("ring", projected_.get(), [this, pass](const Call& call) { return PassKv(pass, call); });
  }
  const int64_t stored =
      start("store", projected_.get(), [this, layer](const Call& call) { return StoreRows(layer, call.stream); });
  if (has_prefix && layer + 1 < spec_.num_layers) {
    start("read prefix", nullptr, [this, layer](const Call&) { return ReadPrefix(layer + 1); });
  }

  const int64_t tiles = kernels_.attention_tiles();
  for (int64_t tile = 0; tile < tiles; ++tile) {
    MOE_RETURN_IF_ERROR(step.launch(kernels_.BeginAttention(module, tile)));
    for (int64_t pass = 0; pass < passes; ++pass) {
      const int64_t needed = received[static_cast<size_t>(pass)];
      if (tile == 0 && needed >= 0) MOE_RETURN_IF_ERROR(wait_for(needed));
      MOE_RETURN_IF_ERROR(step.launch(kernels_.AttendTo(module, tile, kv(), BlocksAfter(pass))));
    }
    MOE_RETURN_IF_ERROR(step.launch(kernels_.FinishAttention(module, tile)));
  }
  return wait_for(stored);
}

absl::Status RankCompute::ReadPrefix(int64_t layer) {
  MOE_RETURN_IF_ERROR(run_.pages->Read(layer, {0, run_.split->begin()}, prefix_.data()));
  prefix_layer_ = layer;
  return absl::OkStatus();
}

absl::Status RankCompute::LoadPrefix(int64_t layer, device::Stream& stream) {
  if (prefix_layer_ != layer) MOE_RETURN_IF_ERROR(ReadPrefix(layer));
  return stream.CopyToDevice(Kv(0), prefix_.data(), run_.split->begin() * token_bytes());
}

absl::Status RankCompute::StoreRows(int64_t layer, device::Stream& stream) {
  uint8_t* to = stored(layer).data();
  for (const IndexRange& stripe : run_.split->Stripes(run_.rank)) {
    const int64_t bytes = stripe.size() * token_bytes();
    if (bytes == 0) continue;
    MOE_RETURN_IF_ERROR(stream.CopyToHost(to, Kv(stripe.begin), bytes));
    if (stores()) to += bytes;
  }
  return absl::OkStatus();
}

absl::Status RankCompute::Store(const engine::LayerStep& step, device::Stream&) {
  const uint8_t* from = stored(step.layer).data();
  for (const IndexRange& stripe : run_.split->Stripes(run_.rank)) {
    MOE_RETURN_IF_ERROR(run_.pages->Write(step.layer, stripe, from));
    if (stores()) from += stripe.size() * token_bytes();
  }
  return absl::OkStatus();
}

int RankCompute::HolderAfter(int64_t passes) const {
  return static_cast<int>((run_.rank + run_.ranks() - passes) % run_.ranks());
}

absl::Status RankCompute::PassKv(int64_t pass, const Call& call) {
  const auto sent = run_.split->Stripes(HolderAfter(pass - 1));
  const auto received = run_.split->Stripes(HolderAfter(pass));
  for (int i = 0; i < ZigZagSplit::kStripes; ++i) {
    MOE_RETURN_IF_ERROR(communicator_.Ring(call, {Kv(sent[i].begin), sent[i].size() * token_bytes()},
                                           {Kv(received[i].begin), received[i].size() * token_bytes()}));
  }
  return absl::OkStatus();
}

std::vector<IndexRange> RankCompute::BlocksAfter(int64_t passes) const {
  std::vector<IndexRange> blocks;
  const auto add = [&](IndexRange more) {  // neighbours are one part
    if (!blocks.empty() && blocks.back().end == more.begin) {
      blocks.back().end = more.end;
    } else if (more.size() > 0) {
      blocks.push_back(more);
    }
  };
  // Whole blocks of what is cached; one that is only partly cached belongs to the stripe that begins in it.
  if (passes == 0) add({0, run_.split->begin() / kv::kPageTokens});
  for (const IndexRange& stripe : run_.split->Stripes(HolderAfter(passes))) add(BlocksOf(stripe));
  return blocks;
}

}  // namespace moestro::prefill
