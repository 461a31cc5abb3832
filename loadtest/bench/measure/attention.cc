// Attention of one decoded token over a long context.
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "common/base/math.h"
#include "common/base/status.h"
#include "common/kv/kv_block.h"
#include "common/model/attention/flash_attention.h"
#include "loadtest/bench/benchmark.h"

namespace moestro::bench {
namespace {

constexpr double kGqaTarget = 0.8;  // of read bandwidth
constexpr double kMlaTarget = 0.7;  // of the dot-product rate

// One token's attention over `tokens` tokens, walking over the sequences of the weight pool.
class Decode {
 public:
  // block_bytes: of kAttentionBlock tokens in the cache, all KV heads.
  Decode(BenchContext& context, const model::AttentionShape& shape, int64_t block_bytes)
      : context_(context),
        shape_(shape),
        block_bytes_(block_bytes),
        attention_(context.kernels, context.pool, shape),
        queries_(MakeInputs(shape.heads * shape.key_dim)),
        out_(shape.heads * shape.value_dim) {}
  virtual ~Decode() = default;

  int64_t bytes() const { return CeilDiv(tokens(), kAttentionBlock) * block_bytes_; }
  double Operations() const {
    return 2.0 * static_cast<double>(tokens() * shape_.heads * (shape_.key_dim + shape_.value_dim));
  }

  void Run() {
    const int64_t sequences = context_.weights.size() / bytes();
    const uint8_t* sequence = context_.weights.data() + next_++ % sequences * bytes();
    const model::QueryRun run[] = {{.begin = 0, .rows = 1, .position = tokens() - 1}};
    attention_.Run(
        run, queries_.data(), /*rule=*/{},
        [&](const model::FlashAttention::BlockRequest& request) {
          return Block(request, sequence + request.block * block_bytes_);
        },
        out_.data(), shape_.heads * shape_.value_dim);
  }

 protected:
  virtual KvBlock Block(const model::FlashAttention::BlockRequest& request, const uint8_t* block) = 0;

  BenchContext& context_;
  const model::AttentionShape shape_;
  const int64_t block_bytes_;

 private:
  int64_t tokens() const { return context_.preset.attention_tokens; }

  model::FlashAttention attention_;
  std::vector<uint16_t> queries_;
  std::vector<uint16_t> out_;
  int64_t next_ = 0;
};

constexpr int kGqaDim = 128;
constexpr int64_t kGqaHeads = 8;  // kv heads
constexpr model::AttentionShape GqaShape() {
  return {.heads = 64,
          .kv_heads = kGqaHeads,
          .key_dim = kGqaDim,
          .value_dim = kGqaDim,
          .scale = 0.08838835f,
          .kv_heads_together = kGqaHeads};
}

// The kind of Qwen3, GLM-4.5 and Mixtral. The cache holds packed blocks.
class GqaDecode : public Decode {
 public:
  explicit GqaDecode(BenchContext& context) : Decode(context, GqaShape(), kBlock.elements() * 2) {}

 private:
  static constexpr kv::PackedHeads kBlock{kGqaHeads, kGqaDim};

  KvBlock Block(const model::FlashAttention::BlockRequest& request, const uint8_t* block) override {
    const uint8_t* first = block + kBlock.Keys(request.kv_heads.begin) * 2;
    return {.next = first + (request.next_block - request.block) * block_bytes_,
            .next_bytes = request.kv_heads.size() * kBlock.head_elements() * 2,
            .packed = first,
            .packed_values = kBlock.key_elements() * 2,
            .head_bytes = kBlock.head_elements() * 2};
  }
};

// DeepSeek-V3's absorbed form: all heads read the same 512 + 64 elements of a token, whose first 512 are also its
// value.
class MlaDecode : public Decode {
 public:
  explicit MlaDecode(BenchContext& context)
      : Decode(context,
               {.heads = 128,
                .kv_heads = 1,
                .key_dim = kKey,
                .value_dim = kLatent,
                .scale = 1 / std::sqrt(float{kHeadDim}),
                .step_blocks = model::kLatentStepBlocks},
               kAttentionBlock * kKey * 2) {}

 private:
  static constexpr int kLatent = 512;
  static constexpr int kKey = kLatent + 64;
  static constexpr int kHeadDim = 192;  // un-absorbed: the dimension that scales the scores

  KvBlock Block(const model::FlashAttention::BlockRequest& request, const uint8_t* block) override {
    const auto* rows = reinterpret_cast<const uint16_t*>(block);
    return {.keys = rows,
            .key_stride = kKey,
            .values = rows,
            .value_stride = kKey,
            .next = block + (request.next_block - request.block) * block_bytes_,
            .next_bytes = block_bytes_};
  }
};

absl::StatusOr<Findings> MeasureGqa(BenchContext& context) {
  MOE_RETURN_IF_ERROR(context.weights.Prepare(DType::kBF16));
  GqaDecode decode(context);
  const Work works[] = {context.ceilings.Read(context.weights.data(), context.weights.size()), {.run = [&] {
                          decode.Run();
                          return static_cast<double>(decode.bytes());
                        }}};
  const auto series = context.timer.Measure(works);
  Row row = MakeRow(absl::StrFormat("GQA, 64 heads over 8 x 128, %d tokens", context.preset.attention_tokens),
                    context.pool.threads(), "GB/s", series[1],
                    "BF16 keys and values of the context, once, from packed blocks as the engine's cache holds them");
  CompareRates(series[1], kReadBandwidth, series[0], kGqaTarget, &row);
  return OneRow(std::move(row));
}

absl::StatusOr<Findings> MeasureMla(BenchContext& context) {
  MOE_RETURN_IF_ERROR(context.weights.Prepare(DType::kBF16));
  MlaDecode decode(context);
  const Work works[] = {context.ceilings.Dot(), {.run = [&] {
                          decode.Run();
                          return decode.Operations();
                        }}};
  const auto series = context.timer.Measure(works);
  Row row = MakeRow(absl::StrFormat("absorbed MLA, 128 heads, %d tokens", context.preset.attention_tokens),
                    context.pool.threads(), "GFLOP/s", series[1],
                    "2 operations for each head, token and number: 576 of scores, 512 of values");
  CompareRates(series[1], kDotRate, series[0], kMlaTarget, &row);
  return OneRow(std::move(row));
}

}  // namespace

void AddAttentionBenchmarks(const Preset&, std::vector<Benchmark>& benchmarks) {
  benchmarks.push_back({"attention", "gqa", MeasureGqa});
  benchmarks.push_back({"attention", "mla-absorbed", MeasureMla});
}

}  // namespace moestro::bench
