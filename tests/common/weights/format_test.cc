// The bytes specified in FORMAT.md. After a failure here, raise kSegmentLayoutVersion and update the document.
#include "common/weights/format.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstring>

#include "absl/strings/escaping.h"
#include "common/weights/checksum.h"
#include "tests/common/weights/small_segment.h"

namespace moestro::weights {
namespace {

TEST(SegmentFormat, HeaderOffsets) {
  EXPECT_EQ(offsetof(SegmentHeader, magic), 0u);
  EXPECT_EQ(offsetof(SegmentHeader, layout_version), 8u);
  EXPECT_EQ(offsetof(SegmentHeader, state), 12u);
  EXPECT_EQ(offsetof(SegmentHeader, generation), 16u);
  EXPECT_EQ(offsetof(SegmentHeader, fingerprint), 24u);
  EXPECT_EQ(offsetof(SegmentHeader, total_bytes), 64u);
  EXPECT_EQ(offsetof(SegmentHeader, directory_offset), 72u);
  EXPECT_EQ(offsetof(SegmentHeader, directory_count), 80u);
  EXPECT_EQ(offsetof(SegmentHeader, data_offset), 88u);
  EXPECT_EQ(offsetof(SegmentHeader, loaded_bytes), 96u);
  EXPECT_EQ(offsetof(SegmentHeader, data_bytes), 104u);
  EXPECT_EQ(offsetof(SegmentHeader, directory_checksum), 112u);
  EXPECT_EQ(offsetof(SegmentHeader, header_checksum), 120u);
  EXPECT_EQ(offsetof(SegmentHeader, spec), 128u);
  EXPECT_EQ(sizeof(SegmentHeader), 544u);
}

TEST(SegmentFormat, EntryOffsets) {
  EXPECT_EQ(offsetof(TensorEntry, name), 0u);
  EXPECT_EQ(offsetof(TensorEntry, dtype), 112u);
  EXPECT_EQ(offsetof(TensorEntry, layout), 116u);
  EXPECT_EQ(offsetof(TensorEntry, rows), 120u);
  EXPECT_EQ(offsetof(TensorEntry, cols), 128u);
  EXPECT_EQ(offsetof(TensorEntry, data_offset), 136u);
  EXPECT_EQ(offsetof(TensorEntry, data_bytes), 144u);
  EXPECT_EQ(offsetof(TensorEntry, scale_offset), 152u);
  EXPECT_EQ(offsetof(TensorEntry, scale_bytes), 160u);
  EXPECT_EQ(offsetof(TensorEntry, exception_offset), 168u);
  EXPECT_EQ(offsetof(TensorEntry, exception_bytes), 176u);
  EXPECT_EQ(offsetof(TensorEntry, checksum), 184u);
  EXPECT_EQ(offsetof(TensorEntry, numa_domains), 192u);
  EXPECT_EQ(offsetof(TensorEntry, reserved), 196u);
  EXPECT_EQ(sizeof(TensorEntry), 200u);
}

TEST(SegmentFormat, SpecOffsets) {
  EXPECT_EQ(offsetof(ModelSpec, hidden_size), 32u);
  EXPECT_EQ(offsetof(ModelSpec, num_layers), 40u);
  EXPECT_EQ(offsetof(ModelSpec, num_heads), 48u);
  EXPECT_EQ(offsetof(ModelSpec, q_lora_rank), 56u);
  EXPECT_EQ(offsetof(ModelSpec, kv_lora_rank), 64u);
  EXPECT_EQ(offsetof(ModelSpec, qk_nope_head_dim), 72u);
  EXPECT_EQ(offsetof(ModelSpec, qk_rope_head_dim), 80u);
  EXPECT_EQ(offsetof(ModelSpec, v_head_dim), 88u);
  EXPECT_EQ(offsetof(ModelSpec, intermediate_size), 96u);
  EXPECT_EQ(offsetof(ModelSpec, moe_intermediate_size), 104u);
  EXPECT_EQ(offsetof(ModelSpec, num_experts), 112u);
  EXPECT_EQ(offsetof(ModelSpec, experts_per_token), 120u);
  EXPECT_EQ(offsetof(ModelSpec, num_shared_experts), 128u);
  EXPECT_EQ(offsetof(ModelSpec, first_dense_layers), 136u);
  EXPECT_EQ(offsetof(ModelSpec, num_expert_groups), 144u);
  EXPECT_EQ(offsetof(ModelSpec, experts_topk_groups), 152u);
  EXPECT_EQ(offsetof(ModelSpec, norm_topk_prob), 160u);
  EXPECT_EQ(offsetof(ModelSpec, vocab_size), 168u);
  EXPECT_EQ(offsetof(ModelSpec, token_count), 176u);
  EXPECT_EQ(offsetof(ModelSpec, max_position_embeddings), 184u);
  EXPECT_EQ(offsetof(ModelSpec, routed_scaling_factor), 192u);
  EXPECT_EQ(offsetof(ModelSpec, rms_norm_eps), 200u);
  EXPECT_EQ(offsetof(ModelSpec, lora_norm_eps), 208u);
  EXPECT_EQ(offsetof(ModelSpec, rope_theta), 216u);
  EXPECT_EQ(offsetof(ModelSpec, yarn), 224u);
  EXPECT_EQ(offsetof(ModelSpec, num_kv_heads), 288u);
  EXPECT_EQ(offsetof(ModelSpec, softmax_router), 296u);
  EXPECT_EQ(offsetof(ModelSpec, heads_without_norms), 304u);
  EXPECT_EQ(offsetof(ModelSpec, rotary_dims), 312u);
  EXPECT_EQ(offsetof(ModelSpec, shared_expert_width), 320u);
  EXPECT_EQ(offsetof(ModelSpec, dense_layers), 328u);
  EXPECT_EQ(offsetof(ModelSpec, qkv_biases), 344u);
  EXPECT_EQ(offsetof(ModelSpec, norms_of_all_heads), 345u);
  EXPECT_EQ(offsetof(ModelSpec, llama3_rope), 346u);
  EXPECT_EQ(offsetof(ModelSpec, largest_of_group), 347u);
  EXPECT_EQ(offsetof(ModelSpec, shared_expert_gate), 348u);
  EXPECT_EQ(offsetof(ModelSpec, tied_head), 349u);
  EXPECT_EQ(offsetof(ModelSpec, layer_norms), 350u);
  EXPECT_EQ(offsetof(ModelSpec, clip_qkv), 352u);
  EXPECT_EQ(offsetof(ModelSpec, sliding_window), 360u);
  EXPECT_EQ(offsetof(ModelSpec, windowed_layers), 368u);
  EXPECT_EQ(offsetof(ModelSpec, swiglu_limit), 384u);
  EXPECT_EQ(offsetof(ModelSpec, swiglu_alpha), 392u);
  EXPECT_EQ(offsetof(ModelSpec, attention_sinks), 400u);
  EXPECT_EQ(offsetof(ModelSpec, output_bias), 401u);
  EXPECT_EQ(offsetof(ModelSpec, router_bias), 402u);
  EXPECT_EQ(offsetof(ModelSpec, expert_biases), 403u);
  EXPECT_EQ(offsetof(ModelSpec, yarn_between_pairs), 404u);
  EXPECT_EQ(offsetof(ModelSpec, reserved), 408u);
  EXPECT_EQ(sizeof(ModelSpec), 416u);
  EXPECT_EQ(offsetof(YarnSpec, original_max_position_embeddings), 48u);
  EXPECT_EQ(offsetof(YarnSpec, enabled), 56u);
}

TEST(SegmentFormat, Numbers) {
  EXPECT_EQ(std::memcmp(&kSegmentMagic, "MEOSTW01", 8), 0);
  EXPECT_EQ(kSegmentLayoutVersion, 3u);
  EXPECT_EQ(static_cast<int>(SegmentState::kLoading), 1);
  EXPECT_EQ(static_cast<int>(SegmentState::kReady), 2);
  EXPECT_EQ(static_cast<int>(SegmentState::kFailed), 3);
  EXPECT_EQ(static_cast<int>(DType::kF32), 0);
  EXPECT_EQ(static_cast<int>(DType::kBF16), 1);
  EXPECT_EQ(static_cast<int>(DType::kF8E4M3), 2);
  const DType in_blocks[] = {DType::kQ8_0,   DType::kQ4_0,  DType::kQ5_0,   DType::kQ4K,   DType::kQ5K,
                             DType::kQ6K,    DType::kI4G32, DType::kI4G128, DType::kMXFP4, DType::kI4Z32,
                             DType::kI4Z128, DType::kQ4_1,  DType::kQ5_1};
  EXPECT_EQ(static_cast<int>(DType::kF16), 3);
  EXPECT_EQ(static_cast<int>(DType::kI8), 4);
  for (int i = 0; i < 13; ++i) EXPECT_EQ(static_cast<int>(in_blocks[i]), 5 + i);
  EXPECT_EQ(static_cast<int>(TensorLayout::kRowMajor), 0);
  EXPECT_EQ(static_cast<int>(TensorLayout::kPacked), 1);
}

std::string Hex(const uint8_t* data, size_t bytes) {
  return std::string(absl::BytesToHexString(std::string(reinterpret_cast<const char*>(data), bytes)));
}

// golden_segment.py prints the expected values; it shares the hash library but none of the code under test.
TEST(SegmentFormat, GoldenBytes) {
  const AlignedMemory memory = SmallSegment();
  ASSERT_EQ(memory.size(), 81920);
  EXPECT_EQ(Hex(memory.data(), 128),
            "4d454f5354573031"
            "03000000"
            "02000000"
            "0300000000000000"
            "30303131323233333434353536363737383839396161626263636464656566660000000000000000"
            "0040010000000000"
            "0010000000000000"
            "0700000000000000"
            "0020000000000000"
            "dcbf000000000000"
            "dcbf000000000000"
            "065059052fecad88"
            "176bed26dd430eb3");
  const auto* fp8 = memory.data() + 4096 + 3 * 200;
  EXPECT_EQ(Hex(fp8, 16), "6670385f7061636b6564000000000000");
  EXPECT_EQ(Hex(fp8 + 112, 88),
            "02000000"
            "01000000"
            "8200000000000000"
            "8100000000000000"
            "0050000000000000"
            "0063000000000000"
            "00b3000000000000"
            "1000000000000000"
            "40b3000000000000"
            "1800000000000000"
            "d286f3401d3e54d9"
            "00000000"
            "00000000");
  EXPECT_EQ(BytesChecksum({memory.data(), static_cast<size_t>(memory.size())}), 0x25de67381feca72fu);
}

}  // namespace
}  // namespace moestro::weights
