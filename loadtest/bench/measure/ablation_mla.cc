// Ablation: one decoded token's attention of DeepSeek's MLA. As the engine computes it (absorbed, all heads folded into
// one matrix product); with fewer heads folded; one head at a time without packing; and un-absorbed.
#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "common/base/math.h"
#include "common/base/status.h"
#include "common/model/attention/flash_attention.h"
#include "common/model/buffer.h"
#include "common/model/linear.h"
#include "loadtest/bench/baselines/plain_mla.h"
#include "loadtest/bench/benchmark.h"

namespace moestro::bench {
namespace {

constexpr int64_t kMlaHeads = 128;
constexpr int64_t kNope = 128;
constexpr int64_t kValue = 128;
constexpr int64_t kMlaLatent = kPlainMlaLatent;
constexpr int64_t kKey = kPlainMlaKey;
constexpr int64_t kMlaRope = kKey - kMlaLatent;
constexpr int64_t kMlaHeadDim = kNope + kMlaRope;
constexpr int64_t kShort = 2048;  // the article's prompt and answer
// Heads that are folded. The article folds 6 of a rank's 22 heads for one request, and 22 for more.
constexpr int64_t kFolds[] = {8, 32};
constexpr int64_t kAllHeads = kMlaHeads;

float Scale() { return 1 / std::sqrt(static_cast<float>(kMlaHeadDim)); }

// Sequences of `tokens` tokens in the weight pool, attended to one after another.
class MlaToken {
 public:
  MlaToken(BenchContext& context, int64_t tokens)
      : context_(context),
        tokens_(tokens),
        queries_(MakeInputs(kMlaHeads * kKey)),
        out_(kMlaHeads * kMlaLatent),
        values_(kMlaHeads * kValue),
        workers_(context.pool.threads()) {}

  int64_t bytes() const { return CeilDiv(tokens_, kAttentionBlock) * kBlockBytes; }
  int threads() const { return context_.pool.threads(); }

  // Absorbed, `fold` heads in a product: each group of heads packs the blocks anew.
  void Folded(int64_t fold) {
    auto& attention = folded_[fold];
    if (attention == nullptr) {
      attention =
          std::make_unique<model::FlashAttention>(context_.kernels, context_.pool,
                                                  model::AttentionShape{.heads = kMlaHeads,
                                                                        .kv_heads = kMlaHeads / fold,
                                                                        .key_dim = kKey,
                                                                        .value_dim = kMlaLatent,
                                                                        .scale = Scale(),
                                                                        .step_blocks = model::kLatentStepBlocks});
    }
    const uint8_t* sequence = NextSequence();
    attention->Run(
        Runs(), queries_.data(), /*rule=*/{},
        [&](const model::FlashAttention::BlockRequest& request) {
          const auto* rows = reinterpret_cast<const uint16_t*>(sequence + request.block * kBlockBytes);
          return KvBlock{.keys = rows,
                         .key_stride = kKey,
                         .values = rows,
                         .value_stride = kKey,
                         .next = sequence + request.next_block * kBlockBytes,
                         .next_bytes = kBlockBytes};
        },
        out_.data(), kMlaHeads * kMlaLatent);
  }

  // Absorbed, one head at a time: every head reads the sequence.
  void Plain() {
    const auto* rows = reinterpret_cast<const uint16_t*>(NextSequence());
    context_.pool.Run(kMlaHeads, [&](int64_t head, int worker) {
      Worker& scratch = workers_[worker];
      std::fill_n(scratch.sums.get(), kMlaLatent, 0.0f);
      SoftmaxState state{-std::numeric_limits<float>::infinity(), 0};
      for (int64_t first = 0; first < tokens_; first += kAttentionBlock) {
        const uint16_t* block = rows + first * kKey;
        PlainMlaScores(queries_.data() + head * kKey, block, kAttentionBlock, scratch.scores);
        const float factor = context_.kernels.softmax_step(scratch.scores, kAttentionBlock, kAttentionBlock, Scale(),
                                                           &state, scratch.weights);
        if (factor != 1) {
          for (int64_t i = 0; i < kMlaLatent; ++i) scratch.sums.get()[i] *= factor;
        }
        PlainMlaValues(scratch.weights, block, kAttentionBlock, scratch.sums.get());
      }
      for (int64_t i = 0; i < kMlaLatent; ++i) scratch.sums.get()[i] /= state.sum;
      context_.kernels.to_bf16(scratch.sums.get(), kMlaLatent, out_.data() + head * kMlaLatent);
    });
  }

  // What absorption adds to a token: queries times the keys' up-projection, sums times that of the values.
  absl::Status PrepareUpProjection() {
    constexpr int64_t kRows = kMlaHeads * (kNope + kValue);
    const int64_t bytes = PackedBytes(DType::kBF16, kRows, kMlaLatent);
    MOE_ASSIGN_OR_RETURN(up_, HugeBuffer::Allocate(bytes));
    WeightPattern(DType::kBF16, 1 / std::sqrt(static_cast<double>(kMlaLatent))).Fill(context_.pool, up_.data(), bytes);
    kv_b_ = {.dtype = DType::kBF16, .rows = kRows, .cols = kMlaLatent, .data = up_.data()};
    // The keys' half has as many weights whichever way it lies.
    key_transposed_ = {.dtype = DType::kBF16, .rows = kMlaHeads * kMlaLatent, .cols = kNope, .data = up_.data()};
    return absl::OkStatus();
  }
  void Absorbed() {
    const std::vector<uint16_t> inputs = MakeInputs(kNope);
    context_.pool.Run(kMlaHeads, [&](int64_t head, int worker) {
      float* latent = workers_[worker].expanded.get();
      model::LinearRows(context_.kernels, key_transposed_, {inputs.data(), kNope, 1},
                        {head * kMlaLatent, (head + 1) * kMlaLatent}, latent);
      context_.kernels.to_bf16(latent, kMlaLatent, queries_.data() + head * kKey);
    });
    Folded(kAllHeads);
    context_.pool.Run(kMlaHeads, [&](int64_t head, int worker) {
      float* values = workers_[worker].expanded.get();
      const int64_t first = head * (kNope + kValue) + kNope;
      model::LinearRows(context_.kernels, kv_b_, {out_.data() + head * kMlaLatent, kMlaLatent, 1},
                        {first, first + kValue}, values);
      context_.kernels.to_bf16(values, kValue, values_.data() + head * kValue);
    });
  }
  // Every head's keys and values of all tokens are expanded from the latents, as in the engine's un-absorbed form.
  void Unabsorbed() {
    if (unabsorbed_ == nullptr) {
      unabsorbed_ =
          std::make_unique<model::FlashAttention>(context_.kernels, context_.pool,
                                                  model::AttentionShape{.heads = kMlaHeads,
                                                                        .kv_heads = kMlaHeads,
                                                                        .key_dim = kMlaHeadDim,
                                                                        .value_dim = kValue,
                                                                        .scale = Scale(),
                                                                        .step_blocks = model::kLatentStepBlocks});
    }
    const uint8_t* sequence = NextSequence();
    unabsorbed_->Run(
        Runs(), queries_.data(), /*rule=*/{},
        [&](const model::FlashAttention::BlockRequest& request) {
          return Expand(reinterpret_cast<const uint16_t*>(sequence + request.block * kBlockBytes), request);
        },
        values_.data(), kMlaHeads * kValue);
  }

 private:
  static constexpr int64_t kBlockBytes = kAttentionBlock * kKey * 2;

  struct Worker {
    model::Buffer<float> sums{kMlaLatent};
    model::Buffer<float> expanded{kAttentionBlock * (kNope + kValue)};
    model::Buffer<uint16_t> keys{kAttentionBlock * kMlaHeadDim};
    model::Buffer<uint16_t> values{kAttentionBlock * kValue};
    float scores[kAttentionBlock];
    uint16_t weights[kAttentionBlock];
  };

  std::vector<model::QueryRun> Runs() const { return {{.begin = 0, .rows = 1, .position = tokens_ - 1}}; }
  const uint8_t* NextSequence() {
    return context_.weights.data() + next_++ % (context_.weights.size() / bytes()) * bytes();
  }

  KvBlock Expand(const uint16_t* rows, const model::FlashAttention::BlockRequest& request) {
    Worker& scratch = workers_[request.worker];
    const int64_t width = kNope + kValue, first = request.kv_heads.begin * width;
    model::LinearRows(context_.kernels, kv_b_, {rows, kKey, request.tokens}, {first, first + width},
                      scratch.expanded.get());
    for (int64_t t = 0; t < request.tokens; ++t) {
      const float* expanded = scratch.expanded.get() + t * width;
      uint16_t* key = scratch.keys.get() + t * kMlaHeadDim;
      context_.kernels.to_bf16(expanded, kNope, key);
      std::copy_n(rows + t * kKey + kMlaLatent, kMlaRope, key + kNope);
      context_.kernels.to_bf16(expanded + kNope, kValue, scratch.values.get() + t * kValue);
    }
    return {
        .keys = scratch.keys.get(), .key_stride = kMlaHeadDim, .values = scratch.values.get(), .value_stride = kValue};
  }

  BenchContext& context_;
  int64_t tokens_;
  std::vector<uint16_t> queries_;
  std::vector<uint16_t> out_;
  std::vector<uint16_t> values_;
  std::vector<Worker> workers_;
  std::unique_ptr<model::FlashAttention> folded_[kAllHeads + 1];  // by fold
  std::unique_ptr<model::FlashAttention> unabsorbed_;
  HugeBuffer up_;
  PackedMatrix kv_b_;
  PackedMatrix key_transposed_;
  int64_t next_ = 0;
};

std::string At(int64_t tokens) { return absl::StrFormat(", %d tokens", tokens); }

absl::StatusOr<Findings> MeasureFolding(BenchContext& context, int64_t tokens) {
  MOE_RETURN_IF_ERROR(context.weights.Prepare(DType::kBF16));
  MlaToken token(context, tokens);
  const double bytes = static_cast<double>(token.bytes());
  struct Variant {
    std::string name;
    std::function<void()> run;
  };
  std::vector<Variant> variants = {{"all 128 heads folded", [&] { token.Folded(kAllHeads); }}};
  for (const int64_t fold : kFolds) {
    variants.push_back({absl::StrFormat("%d heads folded", fold), [&token, fold] { token.Folded(fold); }});
  }
  Findings findings;
  if (context.has_avx512_bf16) {
    variants.push_back({"one head at a time, not packed", [&] { token.Plain(); }});
  } else {
    findings.skipped.push_back({"one head at a time", "this CPU lacks AVX512_BF16"});
  }
  std::vector<Work> works;
  for (const Variant& variant : variants) {
    works.push_back({.run = [&variant, bytes] {
      variant.run();
      return bytes;
    }});
  }
  const auto series = context.timer.Measure(works);
  const size_t plain = variants.size() - 1;
  for (size_t i = 0; i < variants.size(); ++i) {
    const bool article = context.has_avx512_bf16 && i == 0;
    Row row = MakeRow(variants[i].name + At(tokens) + (article ? " (the article: about 1.9)" : ""), token.threads(),
                      "GB/s", series[i], "the context's latents, each counted once");
    if (context.has_avx512_bf16 && i != plain) {
      CompareSpeeds(series[i], variants[plain].name, series[plain], std::nullopt, &row);
    }
    findings.rows.push_back(std::move(row));
  }
  return findings;
}

absl::StatusOr<Findings> MeasureAbsorption(BenchContext& context, int64_t tokens) {
  MOE_RETURN_IF_ERROR(context.weights.Prepare(DType::kBF16));
  MlaToken token(context, tokens);
  MOE_RETURN_IF_ERROR(token.PrepareUpProjection());
  const double bytes = static_cast<double>(token.bytes());
  const Work works[] = {{.run =
                             [&] {
                               token.Unabsorbed();
                               return bytes;
                             }},
                        {.run = [&] {
                          token.Absorbed();
                          return bytes;
                        }}};
  const auto series = context.timer.Measure(works);
  const std::string counted = "the context's latents, each counted once; the up-projections' weights are not counted";
  Findings findings;
  const std::string unabsorbed = "un-absorbed: keys and values expanded";
  findings.rows.push_back(MakeRow(unabsorbed + At(tokens), token.threads(), "GB/s", series[0], counted));
  findings.rows.push_back(
      MakeRow("absorbed, with its own products" + At(tokens), token.threads(), "GB/s", series[1], counted));
  CompareSpeeds(series[1], unabsorbed, series[0], std::nullopt, &findings.rows.back());
  return findings;
}

}  // namespace

void AddMlaBenchmarks(const Preset& preset, std::vector<Benchmark>& benchmarks) {
  const int64_t article = std::min(kShort, preset.attention_tokens);
  benchmarks.push_back(
      {"mla", "folding", [article](BenchContext& context) { return MeasureFolding(context, article); }});
  if (preset.attention_tokens > article) {
    benchmarks.push_back({"mla", "folding-long", [tokens = preset.attention_tokens](BenchContext& context) {
                            return MeasureFolding(context, tokens);
                          }});
  }
  benchmarks.push_back(
      {"mla", "absorption", [article](BenchContext& context) { return MeasureAbsorption(context, article); }});
}

}  // namespace moestro::bench
