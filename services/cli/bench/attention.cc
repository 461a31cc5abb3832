// Attention of one decoded token over a long context.
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "common/base/math.h"
#include "common/base/status.h"
#include "common/model/flash_attention.h"
#include "services/cli/bench/benchmark.h"

namespace moestro::bench {
namespace {

constexpr double kGqaTarget = 0.8;  // of read bandwidth
constexpr double kMlaTarget = 0.7;  // of the dot-product rate

struct Geometry {
  AttentionShape shape;
  int64_t block_bytes = 0;  // of all KV heads: kAttentionBlock tokens
  // The keys and values of one KV head in a block.
  KvBlock (*find)(const AttentionShape& shape, const uint16_t* block, int64_t kv_head);
};

// Qwen3's, GLM-4.5's and Mixtral's kind. A block holds each head's keys, then its values, together.
Geometry Gqa() {
  constexpr int64_t kDim = 128;
  Geometry geometry;
  geometry.shape = {
      .heads = 64, .kv_heads = 8, .key_dim = kDim, .value_dim = kDim, .scale = 1 / std::sqrt(static_cast<float>(kDim))};
  geometry.block_bytes = geometry.shape.kv_heads * 2 * kAttentionBlock * kDim * 2;
  geometry.find = [](const AttentionShape& shape, const uint16_t* block, int64_t kv_head) {
    const uint16_t* keys = block + kv_head * 2 * kAttentionBlock * shape.key_dim;
    return KvBlock{keys, shape.key_dim, keys + kAttentionBlock * shape.key_dim, shape.value_dim};
  };
  return geometry;
}

// DeepSeek-V3's absorbed form: all heads read the same 512 + 64 numbers of a token, whose first 512 are also its value.
Geometry Mla() {
  constexpr int64_t kLatent = 512;
  constexpr int64_t kRope = 64;
  constexpr float kHeadDim = 192;
  Geometry geometry;
  geometry.shape = {
      .heads = 128, .kv_heads = 1, .key_dim = kLatent + kRope, .value_dim = kLatent, .scale = 1 / std::sqrt(kHeadDim)};
  geometry.block_bytes = kAttentionBlock * (kLatent + kRope) * 2;
  geometry.find = [](const AttentionShape& shape, const uint16_t* block, int64_t) {
    return KvBlock{block, shape.key_dim, block, shape.key_dim};
  };
  return geometry;
}

// One token's attention, over one sequence of the weight pool after another.
class Decode {
 public:
  Decode(BenchContext& context, const Geometry& geometry)
      : context_(context),
        geometry_(geometry),
        tokens_(context.preset.attention_tokens),
        attention_(context.kernels, context.pool, geometry.shape),
        queries_(MakeInputs(geometry.shape.heads * geometry.shape.key_dim)),
        out_(geometry.shape.heads * geometry.shape.value_dim) {}

  int64_t bytes() const { return CeilDiv(tokens_, kAttentionBlock) * geometry_.block_bytes; }
  double Operations() const {
    const AttentionShape& shape = geometry_.shape;
    return 2.0 * static_cast<double>(tokens_ * shape.heads * (shape.key_dim + shape.value_dim));
  }

  void Run() {
    const int64_t sequences = context_.weights.size() / bytes();
    const uint8_t* sequence = context_.weights.data() + next_++ % sequences * bytes();
    const QueryRun run[] = {{.begin = 0, .rows = 1, .position = tokens_ - 1}};
    attention_.Run(
        run, queries_.data(),
        [&](const FlashAttention::BlockRequest& request) {
          const auto* block = reinterpret_cast<const uint16_t*>(sequence + request.block * geometry_.block_bytes);
          return geometry_.find(geometry_.shape, block, request.kv_head);
        },
        out_.data());
  }

 private:
  BenchContext& context_;
  Geometry geometry_;
  int64_t tokens_;
  FlashAttention attention_;
  std::vector<uint16_t> queries_;
  std::vector<uint16_t> out_;
  int64_t next_ = 0;
};

absl::StatusOr<Findings> MeasureGqa(BenchContext& context) {
  MOE_RETURN_IF_ERROR(context.weights.Prepare(DType::kBF16));
  Decode decode(context, Gqa());
  const Work works[] = {context.ceilings.Read(context.weights.data(), context.weights.size()), {.run = [&] {
                          decode.Run();
                          return static_cast<double>(decode.bytes());
                        }}};
  const auto series = context.timer.Measure(works);
  Row row = MakeRow(absl::StrFormat("GQA, 64 heads over 8 x 128, %d tokens", context.preset.attention_tokens),
                    context.pool.threads(), "GB/s", series[1],
                    "BF16 keys and values of the context, once; a page keeps each head's together");
  CompareRates(series[1], kReadBandwidth, series[0], kGqaTarget, &row);
  return OneRow(std::move(row));
}

absl::StatusOr<Findings> MeasureMla(BenchContext& context) {
  MOE_RETURN_IF_ERROR(context.weights.Prepare(DType::kBF16));
  Decode decode(context, Mla());
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
