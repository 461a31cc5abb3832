// Attention of one decoded token over a long context.
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "common/base/math.h"
#include "common/base/status.h"
#include "common/model/buffer.h"
#include "common/model/flash_attention.h"
#include "services/cli/bench/benchmark.h"

namespace moestro::bench {
namespace {

constexpr double kGqaTarget = 0.8;  // of read bandwidth
constexpr double kMlaTarget = 0.7;  // of the dot-product rate

// The bytes of a BF16 matrix [kAttentionBlock, dim] or its transpose, packed.
int64_t PackedBlockBytes(int64_t dim) { return PackedBytes(DType::kBF16, kAttentionBlock, dim); }

// One token's attention over `tokens` tokens, over one sequence of the weight pool after another.
class Decode {
 public:
  // block_bytes: of kAttentionBlock tokens in the cache, all KV heads.
  Decode(BenchContext& context, const AttentionShape& shape, int64_t block_bytes)
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
    const QueryRun run[] = {{.begin = 0, .rows = 1, .position = tokens() - 1}};
    attention_.Run(
        run, queries_.data(),
        [&](const FlashAttention::BlockRequest& request) {
          return Block(request, sequence + request.block * block_bytes_);
        },
        out_.data(), shape_.heads * shape_.value_dim);
  }

 protected:
  virtual KvBlock Block(const FlashAttention::BlockRequest& request, const uint8_t* block) = 0;

  BenchContext& context_;
  const AttentionShape shape_;
  const int64_t block_bytes_;

 private:
  int64_t tokens() const { return context_.preset.attention_tokens; }

  FlashAttention attention_;
  std::vector<uint16_t> queries_;
  std::vector<uint16_t> out_;
  int64_t next_ = 0;
};

constexpr int kGqaDim = 128;
constexpr int64_t kGqaHeads = 8;  // kv heads
constexpr AttentionShape GqaShape() {
  return {.heads = 64, .kv_heads = kGqaHeads, .key_dim = kGqaDim, .value_dim = kGqaDim, .scale = 0.08838835f};
}

// Qwen3's, GLM-4.5's and Mixtral's kind, from a cache that holds packed blocks: what the kernels can do.
class GqaDecode : public Decode {
 public:
  explicit GqaDecode(BenchContext& context) : Decode(context, GqaShape(), kGqaHeads * 2 * PackedBlockBytes(kGqaDim)) {}

 private:
  KvBlock Block(const FlashAttention::BlockRequest& request, const uint8_t* block) override {
    const uint8_t* keys = block + request.kv_head * 2 * PackedBlockBytes(kGqaDim);
    return {keys, keys + PackedBlockBytes(kGqaDim)};
  }
};

// The same from a cache that holds a row for each token, keys of all kv heads and then values, as the engine's does: a
// worker packs a block for all kv heads that it attends to, so that it reads the rows as they lie.
class GqaRowsDecode : public Decode {
 public:
  explicit GqaRowsDecode(BenchContext& context)
      : Decode(context, GqaShape(), kAttentionBlock * 2 * kGqaHeads * kGqaDim * 2) {
    for (int i = 0; i < context.pool.threads(); ++i) {
      packed_.push_back({Buffer<uint8_t>(kGqaHeads * kHeadBytes), Buffer<uint8_t>(kGqaHeads * kHeadBytes)});
    }
  }

 private:
  struct Packed {
    Buffer<uint8_t> keys;
    Buffer<uint8_t> values;
  };

  KvBlock Block(const FlashAttention::BlockRequest& request, const uint8_t* block) override {
    constexpr int64_t kRow = 2 * kGqaHeads * kGqaDim;
    const Packed& packed = packed_[request.worker];
    if (request.kv_head == request.kv_heads.begin) {
      const uint16_t* keys = reinterpret_cast<const uint16_t*>(block) + request.kv_head * kGqaDim;
      const int64_t width = request.kv_heads.size() * kGqaDim;
      context_.kernels.pack_keys(keys, kRow, request.tokens, width, packed.keys.get());
      context_.kernels.pack_values(keys + kRow / 2, kRow, request.tokens, width, packed.values.get());
    }
    const int64_t i = request.kv_head - request.kv_heads.begin;
    const uint8_t* next = (request.more ? block + block_bytes_ : block) + i * 2 * kHeadBytes;
    return {packed.keys.get() + i * kHeadBytes, packed.values.get() + i * kHeadBytes, next, next + kHeadBytes,
            /*cached=*/true};
  }

  static constexpr int64_t kHeadBytes = kAttentionBlock * kGqaDim * 2;  // of keys, or values, packed or not

  std::vector<Packed> packed_;  // by worker
};

// DeepSeek-V3's absorbed form: all heads read the same 512 + 64 numbers of a token, whose first 512 are also its value.
// A worker packs each block once, as the engine does.
class MlaDecode : public Decode {
 public:
  explicit MlaDecode(BenchContext& context)
      : Decode(context,
               {.heads = 128,
                .kv_heads = 1,
                .key_dim = kKey,
                .value_dim = kLatent,
                .scale = 1 / std::sqrt(float{kHeadDim})},
               kAttentionBlock * kKey * 2) {
    for (int i = 0; i < context.pool.threads(); ++i) {
      packed_.push_back({Buffer<uint8_t>(PackedBlockBytes(kKey)), Buffer<uint8_t>(PackedBlockBytes(kLatent))});
    }
  }

 private:
  static constexpr int kLatent = 512;
  static constexpr int kKey = kLatent + 64;
  static constexpr int kHeadDim = 192;  // un-absorbed: what scores are scaled by

  struct Packed {
    Buffer<uint8_t> keys;
    Buffer<uint8_t> values;
  };

  KvBlock Block(const FlashAttention::BlockRequest& request, const uint8_t* block) override {
    const auto* cached = reinterpret_cast<const uint16_t*>(block);
    const Packed& packed = packed_[request.worker];
    context_.kernels.pack_keys(cached, kKey, request.tokens, kKey, packed.keys.get());
    context_.kernels.pack_values(cached, kKey, request.tokens, kLatent, packed.values.get());
    return {.keys = packed.keys.get(),
            .values = packed.values.get(),
            .prefetch = request.more ? block + block_bytes_ : block,
            .cached = true};
  }

  std::vector<Packed> packed_;  // by worker
};

absl::StatusOr<Findings> MeasureGqa(BenchContext& context) {
  MOE_RETURN_IF_ERROR(context.weights.Prepare(DType::kBF16));
  GqaDecode packed(context);
  GqaRowsDecode rows(context);
  const auto measured = [](Decode& decode) -> Work {
    return {.run = [&decode] {
      decode.Run();
      return static_cast<double>(decode.bytes());
    }};
  };
  const Work works[] = {context.ceilings.Read(context.weights.data(), context.weights.size()), measured(packed),
                        measured(rows)};
  const auto series = context.timer.Measure(works);
  Findings findings;
  const std::string name = absl::StrFormat("GQA, 64 heads over 8 x 128, %d tokens", context.preset.attention_tokens);
  findings.rows.push_back(MakeRow(name, context.pool.threads(), "GB/s", series[1],
                                  "BF16 keys and values of the context, once, from a cache of packed blocks"));
  CompareRates(series[1], kReadBandwidth, series[0], kGqaTarget, &findings.rows.back());
  findings.rows.push_back(
      MakeRow(name + ", from rows", context.pool.threads(), "GB/s", series[2],
              "the same from rows of tokens, which the engine's cache holds, packed block by block"));
  CompareRates(series[2], kReadBandwidth, series[0], std::nullopt, &findings.rows.back());
  return findings;
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
