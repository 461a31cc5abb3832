// Attention of one decoded token over a long context.
#include <cmath>
#include <string>
#include <utility>

#include "absl/strings/str_format.h"
#include "common/base/status.h"
#include "loadtest/bench/benchmark.h"
#include "loadtest/bench/measure/decode_attention.h"

namespace moestro::bench {
namespace {

constexpr double kGqaTarget = 0.85;  // of read bandwidth
constexpr double kMlaTarget = 0.73;  // of the dot-product rate

// DeepSeek-V3's absorbed form: all heads read the same 512 + 64 elements of a token, whose first 512 are also its
// value.
class MlaDecode : public DecodeAttention {
 public:
  explicit MlaDecode(BenchContext& context)
      : DecodeAttention(context,
                        {.heads = 128,
                         .kv_heads = 1,
                         .key_dim = kKey,
                         .value_dim = kLatent,
                         .scale = 1 / std::sqrt(float{kHeadDim}),
                         .step_blocks = model::kLatentStepBlocks},
                        kAttentionBlock * kKey * 2, /*sequences=*/1, context.preset.attention_tokens) {}

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

absl::StatusOr<Findings> MeasureGqa(BenchContext& context, int heads) {
  MOE_RETURN_IF_ERROR(context.weights.Prepare(DType::kBF16));
  GqaAttention decode(context, heads, /*sequences=*/1, context.preset.attention_tokens);
  const Work works[] = {context.ceilings.Read(context.weights.data(), context.weights.size()), {.run = [&] {
                          decode.Run();
                          return static_cast<double>(decode.bytes());
                        }}};
  const auto series = context.timer.Measure(works);
  Row row = MakeRow(absl::StrFormat("GQA, %d heads over 8 x 128, %d tokens", heads, context.preset.attention_tokens),
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
  for (const int heads : {32, 64}) {  // groups of 4 and of 8
    benchmarks.push_back({"attention", absl::StrFormat("gqa-%d", heads),
                          [heads](BenchContext& context) { return MeasureGqa(context, heads); }});
  }
  benchmarks.push_back({"attention", "mla-absorbed", MeasureMla});
}

}  // namespace moestro::bench
