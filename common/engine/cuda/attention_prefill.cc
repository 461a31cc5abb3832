// Attention of a prompt, part by part of its tokens.
#include <algorithm>

#include "common/base/status.h"
#include "common/engine/cuda/attention.h"
#include "common/engine/weight_image.h"
#include "common/kernels/cuda/attention.h"
#include "common/model/attention/rope.h"

namespace moestro {
namespace {

// Keys and values of a part for some heads.
struct PartVectors {
  int64_t kv_heads = 0;
  cuda::KvVectors keys, shared_keys, values;
};

// MLA: expanded from the latents.
absl::StatusOr<PartVectors> Expand(const CudaRows& rows, const AttentionWeights& w, IndexRange heads,
                                   const KvPart& part, cuda::Stream stream) {
  const ModelSpec& spec = rows.spec;
  uint16_t* const expanded = rows.activations.expanded;
  const int64_t head = spec.qk_nope_head_dim + spec.v_head_dim, width = heads.size() * head;
  const PackedMatrix slice = SliceRows(w.kv_b, heads.begin * head, width);
  MOE_RETURN_IF_ERROR(LaunchStatus(
      cuda::LaunchLinear(ShapeOf(slice, part.latents, spec.kv_dim(), expanded, width, cuda::LinearOutput::kBf16),
                         PointersOf(slice), part.tokens, stream)));
  const cuda::KvVectors keys{expanded, nullptr, cuda::kKvBlock * width, width, head};
  cuda::KvVectors values = keys;
  values.data += spec.qk_nope_head_dim;
  const cuda::KvVectors shared{part.latents + spec.kv_lora_rank, nullptr, cuda::kKvBlock * spec.kv_dim(), spec.kv_dim(),
                               0};
  return PartVectors{heads.size(), keys, shared, values};
}

// Grouped queries: as they are cached. The heads are whole groups.
PartVectors Cached(const CudaRows& rows, IndexRange heads, const KvPart& part) {
  const ModelSpec& spec = rows.spec;
  const int64_t group = spec.num_heads / spec.num_kv_heads;
  const cuda::KvVectors keys{part.latents + heads.begin / group * spec.v_head_dim, nullptr,
                             cuda::kKvBlock * spec.kv_dim(), spec.kv_dim(), spec.v_head_dim};
  cuda::KvVectors values = keys;
  values.data += spec.num_kv_heads * spec.v_head_dim;
  return {heads.size() / group, keys, {}, values};
}

// What merging works with, of a stripe's rows and some heads.
cuda::MergeAttentionArgs MergeOf(const CudaRows& rows, IndexRange heads, IndexRange of) {
  const CudaActivations& a = rows.activations;
  const int64_t value_dim = rows.spec.v_head_dim, first = of.begin * heads.size();
  return {.rows = of.size(),
          .heads = heads.size(),
          .value_dim = value_dim,
          .total = a.partial[0] + first * value_dim,
          .total_log_sum = a.log_sum[0] + first,
          .part = a.partial[1] + first * value_dim,
          .part_log_sum = a.log_sum[1] + first,
          .out = a.attended + of.begin * rows.spec.num_heads * value_dim + heads.begin * value_dim,
          .out_stride = rows.spec.num_heads * value_dim};
}

}  // namespace

absl::Status Attend(const CudaRows& rows, const AttentionWeights& w, IndexRange heads, const KvPart& part,
                    cuda::Stream stream) {
  const ModelSpec& spec = rows.spec;
  const CudaActivations& a = rows.activations;
  PartVectors vectors;
  if (spec.attention_kind() == AttentionKind::kGroupedQueries) {
    vectors = Cached(rows, heads, part);
  } else {
    MOE_ASSIGN_OR_RETURN(vectors, Expand(rows, w, heads, part, stream));
  }
  for (const CudaStripe& stripe : rows.stripes) {
    // The first part sets what others add to, even where it has nothing for a stripe.
    if (!part.is_first && stripe.end() <= part.first_token) continue;
    cuda::MergeAttentionArgs merge = MergeOf(rows, heads, stripe.rows);
    cuda::PrefillAttentionArgs attention{.heads = heads.size(),
                                         .kv_heads = vectors.kv_heads,
                                         .key_dim = spec.qk_head_dim(),
                                         .value_dim = spec.v_head_dim,
                                         .scale = static_cast<float>(SoftmaxScale(spec)),
                                         .keys = vectors.keys,
                                         .shared_keys = vectors.shared_keys,
                                         .values = vectors.values,
                                         .position = stripe.position,
                                         .rows = stripe.rows.size(),
                                         .queries = a.queries + stripe.rows.begin * heads.size() * spec.qk_head_dim(),
                                         .query_stride = heads.size() * spec.qk_head_dim(),
                                         .first_token = part.first_token,
                                         .tokens = part.tokens};
    if (part.is_first && part.is_last) {
      attention.out = merge.out;
      attention.out_stride = merge.out_stride;
    } else {
      const int buffer = part.is_first ? 0 : 1;  // the total, or what is added to it
      const int64_t first = stripe.rows.begin * heads.size();
      attention.partial = a.partial[buffer] + first * spec.v_head_dim;
      attention.log_sum = a.log_sum[buffer] + first;
    }
    MOE_RETURN_IF_ERROR(LaunchStatus(cuda::LaunchPrefillAttention(attention, stream)));
    if (part.is_first) continue;
    if (!part.is_last) merge.out = nullptr;
    MOE_RETURN_IF_ERROR(LaunchStatus(cuda::LaunchMergeAttention(merge, stream)));
  }
  return absl::OkStatus();
}

absl::Status FinishHeads(const CudaRows& rows, IndexRange heads, cuda::Stream stream) {
  cuda::MergeAttentionArgs merge = MergeOf(rows, heads, {0, rows.rows});
  merge.part = merge.part_log_sum = nullptr;
  return LaunchStatus(cuda::LaunchMergeAttention(merge, stream));
}

}  // namespace moestro
