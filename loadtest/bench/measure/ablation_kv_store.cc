// Ablation: a token's keys and values go from the projection into the KV cache in one pass, as the engine stores them,
// or through a buffer of their own and a copy.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "common/base/math.h"
#include "common/base/status.h"
#include "common/model/attention/flash_attention.h"
#include "common/model/attention/rope.h"
#include "common/model/buffer.h"
#include "loadtest/bench/benchmark.h"

namespace moestro::bench {
namespace {

constexpr int64_t kLatent = 512;
constexpr int64_t kRope = 64;
constexpr int64_t kRow = kLatent + kRope;  // of the cache: DeepSeek's MLA
constexpr int64_t kHeads = 128;
constexpr int64_t kHeadDim = 192;
constexpr int64_t kContext = 1024;  // the article's prompt

// One decoded token of each of `tokens` sequences.
class KvStore {
 public:
  KvStore(BenchContext& context, int64_t tokens, int64_t context_tokens)
      : context_(context),
        tokens_(tokens),
        blocks_(CeilDiv(context_tokens, kAttentionBlock)),
        position_(context_tokens - 1),
        projected_(tokens * kRow),
        latents_(tokens * kRow),
        staged_(tokens * kRow),
        cache_(tokens * blocks_ * kAttentionBlock * kRow),
        norm_(kLatent),
        angles_(kRope),
        attention_(context.kernels, context.pool,
                   {.heads = kHeads,
                    .kv_heads = 1,
                    .key_dim = kRow,
                    .value_dim = kLatent,
                    .scale = 1 / std::sqrt(float{kHeadDim}),
                    .step_blocks = model::kLatentStepBlocks}),
        queries_(MakeInputs(tokens * kHeads * kRow)),
        out_(tokens * kHeads * kLatent) {
    std::fill_n(norm_.get(), kLatent, 1.0f);
    for (int64_t i = 0; i < kRope; ++i) angles_.get()[i] = i < kRope / 2 ? 0.6f : 0.8f;  // cosines, then sines
    const std::vector<uint16_t> inputs = MakeInputs(tokens * kRow);
    for (int64_t i = 0; i < tokens * kRow; ++i) projected_.get()[i] = FromBf16(inputs[i]);
    const std::vector<uint16_t> cached = MakeInputs(tokens * blocks_ * kAttentionBlock * kRow);
    std::ranges::copy(cached, cache_.get());
    for (int64_t i = 0; i < tokens; ++i) runs_.push_back({.begin = i, .rows = 1, .position = position_});
  }

  void StoreFused() {
    context_.pool.Run(tokens_, [&](int64_t i, int) { Finish(i, Place(i)); });
  }
  // A buffer for the normalised latents and rotated keys, then a copy of its rows to their places.
  void StoreStaged() {
    context_.pool.Run(tokens_, [&](int64_t i, int) { Finish(i, staged_.get() + i * kRow); });
    context_.pool.Run(
        tokens_, [&](int64_t i, int) { std::memcpy(Place(i), staged_.get() + i * kRow, kRow * sizeof(uint16_t)); });
  }
  void Attend() {
    attention_.Run(
        runs_, queries_.data(), /*rule=*/{},
        [&](const model::FlashAttention::BlockRequest& request) {
          const uint16_t* rows = Block(request.run, request.block);
          return KvBlock{.keys = rows,
                         .key_stride = kRow,
                         .values = rows,
                         .value_stride = kRow,
                         .next = reinterpret_cast<const uint8_t*>(Block(request.run, request.next_block)),
                         .next_bytes = kAttentionBlock * kRow * 2};
        },
        out_.data(), kHeads * kLatent);
  }

 private:
  uint16_t* Block(int64_t sequence, int64_t block) const {
    return cache_.get() + (sequence * blocks_ + block) * kAttentionBlock * kRow;
  }
  uint16_t* Place(int64_t i) const { return Block(i, 0) + position_ * kRow; }

  // As the engine: the normalised latent, then the rotated key.
  void Finish(int64_t i, uint16_t* entry) {
    // The rotation is in place. The projection writes these numbers anew for each token.
    float* latent = latents_.get() + i * kRow;
    std::memcpy(latent, projected_.get() + i * kRow, kRow * sizeof(float));
    context_.kernels.rms_norm(latent, norm_.get(), kLatent, 1e-6f, nullptr, entry);
    model::RotatePairs(angles_.get(), angles_.get() + kRope / 2, kRope / 2, latent + kLatent);
    context_.kernels.to_bf16(latent + kLatent, kRope, entry + kLatent);
  }

  BenchContext& context_;
  int64_t tokens_;
  int64_t blocks_;  // of a sequence
  int64_t position_;
  model::Buffer<float> projected_;
  model::Buffer<float> latents_;
  model::Buffer<uint16_t> staged_;
  model::Buffer<uint16_t> cache_;
  model::Buffer<float> norm_;
  model::Buffer<float> angles_;
  model::FlashAttention attention_;
  std::vector<model::QueryRun> runs_;
  std::vector<uint16_t> queries_;
  std::vector<uint16_t> out_;
};

absl::StatusOr<Findings> Measure(BenchContext& context, int64_t tokens) {
  const int64_t context_tokens = std::min(kContext, context.preset.attention_tokens);
  KvStore store(context, tokens, context_tokens);
  const auto bytes = static_cast<double>(tokens * kRow * 2);
  const auto read = static_cast<double>(tokens * context_tokens * kRow * 2);
  const auto work = [&](bool fused, bool attends) {
    return Work{.run = [=, &store] {
      if (fused) {
        store.StoreFused();
      } else {
        store.StoreStaged();
      }
      if (attends) store.Attend();
      return attends ? read : bytes;
    }};
  };
  const Work works[] = {work(false, false), work(true, false), work(false, true), work(true, true)};
  const auto series = context.timer.Measure(works);
  const std::string of = absl::StrFormat("%d token%s stored into the cache directly", tokens, tokens == 1 ? "" : "s");
  const int threads = context.pool.threads();
  Findings findings;
  const auto add = [&](const std::string& name, size_t subject, size_t reference, const std::string& counted) {
    Row row = MakeRow(name, threads, "GB/s", series[subject], counted);
    CompareSpeeds(series[subject], "through a buffer", series[reference], std::nullopt, &row);
    findings.rows.push_back(std::move(row));
  };
  add(of, 1, 0, "bytes of the cache's rows");
  add(absl::StrFormat("%s, with attention over %d tokens (the article: 1.12, without Torch's overheads)", of,
                      context_tokens),
      3, 2, "bytes of the contexts' latents, once");
  return findings;
}

}  // namespace

void AddKvStoreBenchmarks(const Preset&, std::vector<Benchmark>& benchmarks) {
  for (const int64_t tokens : {1, 16}) {
    benchmarks.push_back({"kv-store", absl::StrFormat("mla-%d", tokens),
                          [tokens](BenchContext& context) { return Measure(context, tokens); }});
  }
}

}  // namespace moestro::bench
