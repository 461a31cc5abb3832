#include "loadtest/bench/measure/decode_attention.h"

#include "common/base/math.h"

namespace moestro::bench {
namespace {

constexpr int kGqaDim = 128;
constexpr int64_t kGqaHeads = 8;  // of keys and values
constexpr kv::PackedHeads kGqaBlock{kGqaHeads, kGqaDim};

}  // namespace

DecodeAttention::DecodeAttention(BenchContext& context, const model::AttentionShape& shape, int64_t block_bytes,
                                 int64_t sequences, int64_t tokens)
    : context_(context),
      shape_(shape),
      block_bytes_(block_bytes),
      sequences_(sequences),
      tokens_(tokens),
      sequence_bytes_(CeilDiv(tokens, kAttentionBlock) * block_bytes),
      attention_(context.kernels, context.pool, shape),
      queries_(MakeInputs(sequences * shape.heads * shape.key_dim)),
      out_(sequences * shape.heads * shape.value_dim) {
  for (int64_t i = 0; i < sequences; ++i) runs_.push_back({.begin = i, .rows = 1, .position = tokens - 1});
}

double DecodeAttention::Operations() const {
  return 2.0 * static_cast<double>(sequences_ * tokens_ * shape_.heads * (shape_.key_dim + shape_.value_dim));
}

void DecodeAttention::Run() {
  const uint8_t* first = context_.weights.data() + next_++ % (context_.weights.size() / bytes()) * bytes();
  attention_.Run(
      runs_, queries_.data(), /*rule=*/{},
      [&](const model::FlashAttention::BlockRequest& request) {
        return Block(request, first + request.run * sequence_bytes_ + request.block * block_bytes_);
      },
      out_.data(), shape_.heads * shape_.value_dim);
}

GqaAttention::GqaAttention(BenchContext& context, int64_t heads, int64_t sequences, int64_t tokens)
    : DecodeAttention(context,
                      {.heads = heads,
                       .kv_heads = kGqaHeads,
                       .key_dim = kGqaDim,
                       .value_dim = kGqaDim,
                       .scale = 0.08838835f,
                       .kv_heads_together = kGqaHeads},
                      kGqaBlock.elements() * 2, sequences, tokens) {}

KvBlock GqaAttention::Block(const model::FlashAttention::BlockRequest& request, const uint8_t* block) {
  const uint8_t* first = block + kGqaBlock.Keys(request.kv_heads.begin) * 2;
  return {.next = first + (request.next_block - request.block) * block_bytes_,
          .next_bytes = request.kv_heads.size() * kGqaBlock.head_elements() * 2,
          .packed = first,
          .packed_values = kGqaBlock.key_elements() * 2,
          .head_bytes = kGqaBlock.head_elements() * 2};
}

}  // namespace moestro::bench
