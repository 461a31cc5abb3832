// One model as safetensors and as GGUF gives one segment, byte for byte. Names, stacks and the order of rows are those
// of llama.cpp's converters.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/tensor/block_rows.h"
#include "common/tensor/dtype.h"
#include "tests/services/weight_store/pack/pack_in_memory.h"
#include "tests/support/families.h"
#include "tests/support/random_checkpoint.h"

namespace moestro::store {
namespace {

using testing::ExpectError;
using testing::Family;
using testing::GgufBuilder;
using testing::TinyFamily;
using Tensor = RandomCheckpoint::Tensor;
using Tensors = std::map<std::string, Tensor>;

Family Glm() {
  Family family = TinyFamily("glm-4.5-air");
  family.config["use_qk_norm"] = true;  // as the larger GLM-4.5
  return family;
}
// kv_b_proj is one tensor, as in the first files of the family.
Family DeepSeekOfOneTensor() {
  Family family = TinyFamily("deepseek-v2");
  family.config["topk_method"] = "greedy";  // three experts are one group
  return family;
}
Family DeepSeekOfHalves() { return TinyFamily("deepseek-v3"); }

// The converters' names, for those of published checkpoints.
const std::map<std::string, std::string> kNames = {
    {"input_layernorm", "attn_norm"},
    {"post_attention_layernorm", "ffn_norm"},
    {"self_attn.q_proj", "attn_q"},
    {"self_attn.k_proj", "attn_k"},
    {"self_attn.v_proj", "attn_v"},
    {"self_attn.q_norm", "attn_q_norm"},
    {"self_attn.k_norm", "attn_k_norm"},
    {"self_attn.o_proj", "attn_output"},
    {"self_attn.q_a_proj", "attn_q_a"},
    {"self_attn.q_a_layernorm", "attn_q_a_norm"},
    {"self_attn.q_b_proj", "attn_q_b"},
    {"self_attn.kv_a_proj_with_mqa", "attn_kv_a_mqa"},
    {"self_attn.kv_a_layernorm", "attn_kv_a_norm"},
    {"self_attn.kv_b_proj", "attn_kv_b"},
    {"self_attn.sinks", "attn_sinks.weight"},
    {"mlp.gate", "ffn_gate_inp"},
    {"mlp.router", "ffn_gate_inp"},
    {"block_sparse_moe.e_score_correction_bias", "exp_probs_b.bias"},
    {"block_sparse_moe.gate", "ffn_gate_inp"},
    {"mlp.gate.e_score_correction_bias", "exp_probs_b.bias"},
    {"mlp.shared_expert_gate", "ffn_gate_inp_shexp"},
    {"mlp.gate_proj", "ffn_gate"},
    {"mlp.up_proj", "ffn_up"},
    {"mlp.down_proj", "ffn_down"},
    {"mlp.shared_experts.gate_proj", "ffn_gate_shexp"},
    {"mlp.shared_experts.up_proj", "ffn_up_shexp"},
    {"mlp.shared_experts.down_proj", "ffn_down_shexp"},
    {"mlp.shared_expert.gate_proj", "ffn_gate_shexp"},
    {"mlp.shared_expert.up_proj", "ffn_up_shexp"},
    {"mlp.shared_expert.down_proj", "ffn_down_shexp"},
    {"norm_attn_norm.norm_1", "attn_norm"},
    {"norm_attn_norm.norm_2", "attn_output_norm"},
    {"norm_attn_norm.attn.Wqkv", "attn_qkv"},
    {"norm_attn_norm.attn.out_proj", "attn_output"},
    {"ffn.router.layer", "ffn_gate_inp"},
    {"ffn.experts.mlp.w1", "ffn_gate_exps.weight"},
    {"ffn.experts.mlp.v1", "ffn_up_exps.weight"},
    {"ffn.experts.mlp.w2", "ffn_down_exps.weight"},
    {"model.embed_tokens.weight", "token_embd.weight"},
    {"transformer.wte.weight", "token_embd.weight"},
    {"model.norm.weight", "output_norm.weight"},
    {"transformer.norm_f.weight", "output_norm.weight"},
    {"lm_head.weight", "output.weight"},
};
const std::map<std::string, std::string> kExpertNames = {
    {"w1", "gate"}, {"w3", "up"}, {"w2", "down"}, {"gate_proj", "gate"}, {"up_proj", "up"}, {"down_proj", "down"}};

int64_t RowBytesOf(const Tensor& tensor) {
  int64_t rows = 1;
  for (size_t i = 0; i + 1 < tensor.shape.size(); ++i) rows *= tensor.shape[i];
  return static_cast<int64_t>(tensor.data.size()) / rows;
}

// Rows of both halves of a head by turns.
void Interleave(Tensor& tensor, int64_t head) {
  const auto bytes = static_cast<size_t>(RowBytesOf(tensor));
  std::string data;
  for (int64_t row = 0; row < tensor.shape[0]; ++row) {
    const int64_t in_head = row % head;
    data +=
        tensor.data.substr(static_cast<size_t>(row - in_head + in_head % 2 * (head / 2) + in_head / 2) * bytes, bytes);
  }
  tensor.data = data;
}

// [experts * rows, columns] of BF16 to [experts, columns, rows].
void TransposeEach(Tensor& tensor, int64_t experts) {
  const int64_t rows = tensor.shape[0] / experts, cols = tensor.shape[1];
  std::string data(tensor.data.size(), '\0');
  for (int64_t e = 0; e < experts; ++e) {
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < cols; ++c) {
        std::memcpy(&data[static_cast<size_t>(2 * ((e * cols + c) * rows + r))],
                    &tensor.data[static_cast<size_t>(2 * ((e * rows + r) * cols + c))], 2);
      }
    }
  }
  tensor.data = data;
  tensor.shape = {experts, cols, rows};
}

// Of [experts, inputs, outputs], or [experts, outputs] of a bias, the outputs first, first + step, ...: each a row.
Tensor OutputsOf(const Tensor& tensor, int64_t first, int64_t step) {
  const size_t bytes = tensor.dtype == "F32" ? 4 : 2;
  const bool is_bias = tensor.shape.size() == 2;
  const int64_t inputs = is_bias ? 1 : tensor.shape[1], outputs = tensor.shape.back();
  Tensor result = {tensor.dtype, {tensor.shape[0], outputs / step}, ""};
  if (!is_bias) result.shape.push_back(inputs);
  for (int64_t e = 0; e < tensor.shape[0]; ++e) {
    for (int64_t o = first; o < outputs; o += step) {
      for (int64_t i = 0; i < inputs; ++i) {
        result.data += tensor.data.substr(static_cast<size_t>((e * inputs + i) * outputs + o) * bytes, bytes);
      }
    }
  }
  return result;
}

// The experts of a layer of gpt-oss. `name`: "gate_up_proj", with "_bias" behind it or not.
void SplitExperts(const std::string& block, const std::string& name, const Tensor& tensor, Tensors& converted) {
  const std::string kind = absl::EndsWith(name, "_bias") ? "_exps.bias" : "_exps.weight";
  if (absl::StartsWith(name, "down_proj")) {
    converted[block + "ffn_down" + kind] = OutputsOf(tensor, 0, 1);
  } else {
    converted[block + "ffn_gate" + kind] = OutputsOf(tensor, 0, 2);
    converted[block + "ffn_up" + kind] = OutputsOf(tensor, 1, 2);
  }
}

// What the converter of this architecture makes of a published checkpoint.
Tensors Convert(const RandomCheckpoint& random, const std::string& architecture) {
  const weights::ModelSpec& spec = random.spec();
  Tensors converted;
  for (auto [name, tensor] : random.tensors()) {
    if (const auto found = kNames.find(name); found != kNames.end()) {
      converted[found->second] = tensor;
      continue;
    }
    const std::vector<std::string> words = absl::StrSplit(name, '.');
    const std::string block = "blk." + words[2] + ".";
    std::string rest = absl::StrJoin(words.begin() + 3, words.end(), ".");
    if (architecture == "gpt-oss" && words[4] == "experts") {
      SplitExperts(block, words[5], tensor, converted);
      continue;
    }
    if (words[4] == "experts" && words[3] != "ffn") {  // in the order of ids: there are fewer than ten
      Tensor& stack = converted[block + "ffn_" + kExpertNames.at(words[6]) + "_exps.weight"];
      stack.dtype = tensor.dtype;
      stack.shape = {spec.num_experts, tensor.shape[0], tensor.shape[1]};
      stack.data += tensor.data;
      continue;
    }
    const bool rotates = rest == "self_attn.q_proj.weight" || rest == "self_attn.k_proj.weight";
    if (architecture == "llama" && rotates) Interleave(tensor, spec.head_dim());
    if (absl::EndsWith(rest, "mlp.w2")) TransposeEach(tensor, spec.num_experts);
    if (absl::EndsWith(rest, "mlp.w1") || absl::EndsWith(rest, "mlp.v1")) {
      tensor.shape = {spec.num_experts, tensor.shape[0] / spec.num_experts, tensor.shape[1]};
    }
    if (rest == "mlp.shared_expert_gate.weight") tensor.shape = {tensor.shape[1]};
    const bool renamed = architecture == "glm4moe" || architecture == "gpt-oss";
    if (renamed && rest == "post_attention_layernorm.weight") {
      converted[block + "post_attention_norm.weight"] = tensor;
    } else if (const auto whole = kNames.find(rest); whole != kNames.end()) {
      converted[block + whole->second] = tensor;
    } else {
      const size_t end = rest.rfind('.');
      converted[block + kNames.at(rest.substr(0, end)) + rest.substr(end)] = tensor;
    }
  }
  return converted;
}

class GgufSegment : public ::testing::Test {
 protected:
  GgufSegment() { dir_.Write("tokenizer.json", "{}"); }  // these files have none

  static weights::ModelSpec Spec(const Family& family) {
    return checkpoint::ParseModelSpec(family.config.dump(), "").value();
  }

  static void AddTensor(const std::string& name, const Tensor& tensor, GgufBuilder* builder) {
    const std::vector<uint64_t> extents(tensor.shape.rbegin(), tensor.shape.rend());
    static const std::map<std::string, uint32_t> kTypes = {{"F32", 0}, {"F16", 1}, {"BF16", 30}, {"MXFP4", 39}};
    builder->Tensor(name, kTypes.at(tensor.dtype), extents, tensor.data);
  }

  absl::StatusOr<checkpoint::Checkpoint> OpenGguf(const Family& family, const Tensors& tensors) {
    GgufBuilder builder;
    AddMetadata(family, &builder);
    for (const auto& [name, tensor] : tensors) AddTensor(name, tensor, &builder);
    return checkpoint::Checkpoint::Open(dir_.Write("model.gguf", builder.Build()));
  }

  static void ExpectSameSegment(const RandomCheckpoint& random, const absl::StatusOr<checkpoint::Checkpoint>& gguf,
                                const std::string& published_config = "{}") {
    ASSERT_TRUE(gguf.ok()) << gguf.status();
    const auto spec = checkpoint::ParseModelSpec(gguf->documents().config_json, "");
    ASSERT_TRUE(spec.ok()) << spec.status();
    EXPECT_EQ(std::memcmp(&*spec, &random.spec(), sizeof *spec), 0) << gguf->documents().config_json;
    random.Write();
    random.dir().Write("config.json", published_config);
    const checkpoint::Checkpoint published = random.Open();
    const Packed expected = PackInMemory(published, random.spec());
    ASSERT_TRUE(expected.status.ok()) << expected.status;
    const Packed packed = PackInMemory(*gguf, *spec, {.threads = 2});
    ASSERT_TRUE(packed.status.ok()) << packed.status;
    ASSERT_EQ(packed.memory.size(), expected.memory.size());
    EXPECT_EQ(std::memcmp(packed.memory.data(), expected.memory.data(), static_cast<size_t>(packed.memory.size())), 0);
  }

  // `change` may do to the converted tensors what other converters do.
  void ExpectSameSegment(const Family& family, const std::function<void(Tensors&)>& change = nullptr) {
    const RandomCheckpoint random(Spec(family), false);
    Tensors tensors = Convert(random, family.architecture);
    if (change) change(tensors);
    ExpectSameSegment(random, OpenGguf(family, tensors));
  }

  testing::TempDir dir_;
};

TEST_F(GgufSegment, Mixtral) { ExpectSameSegment(TinyFamily("mixtral-8x7b")); }
TEST_F(GgufSegment, LlamaWithATiedHead) { ExpectSameSegment(TinyFamily("llama-3.2-3b")); }
TEST_F(GgufSegment, Qwen2Moe) { ExpectSameSegment(TinyFamily("qwen2-57b")); }
TEST_F(GgufSegment, Qwen3Moe) { ExpectSameSegment(TinyFamily("qwen3-235b")); }
TEST_F(GgufSegment, Dbrx) { ExpectSameSegment(TinyFamily("dbrx")); }
TEST_F(GgufSegment, Glm4Moe) { ExpectSameSegment(Glm()); }
TEST_F(GgufSegment, GptOss) { ExpectSameSegment(TinyFamily("gpt-oss-20b")); }
TEST_F(GgufSegment, MiniMaxM2) { ExpectSameSegment(TinyFamily("minimax-m2")); }
TEST_F(GgufSegment, DeepSeekWithKeysAndValuesInOneTensor) { ExpectSameSegment(DeepSeekOfOneTensor()); }

// A weight in MXFP4 as gpt-oss is published: bytes of two neighbouring inputs, and the scales of 32.
struct CodesAndScales {
  Tensor codes;
  Tensor scales;
};
CodesAndScales RandomMxfp4(int64_t experts, int64_t rows, int64_t cols, std::mt19937& random) {
  CodesAndScales weight = {{"U8", {experts, rows, cols / 32, 16}, ""}, {"U8", {experts, rows, cols / 32}, ""}};
  for (int64_t i = 0; i < experts * rows * cols / 2; ++i) weight.codes.data += static_cast<char>(random());
  for (int64_t i = 0; i < experts * rows * cols / 32; ++i) weight.scales.data += static_cast<char>(random() % 255);
  return weight;
}

// Rows first, first + step, ... as blocks of GGUF: a scale, and bytes of an input and the one 16 behind it.
Tensor InBlocks(const CodesAndScales& weight, int64_t first, int64_t step) {
  const std::vector<int64_t>& shape = weight.scales.shape;
  Tensor result = {"MXFP4", {shape[0], shape[1] / step, shape[2] * 32}, ""};
  for (int64_t block = 0; block < std::ssize(weight.scales.data); ++block) {
    if (block / shape[2] % step != first) continue;
    const auto code = [&](int64_t i) {
      return static_cast<uint8_t>(weight.codes.data[static_cast<size_t>(block * 16 + i / 2)]) >> (i % 2 * 4) & 15;
    };
    result.data += weight.scales.data[static_cast<size_t>(block)];
    for (int64_t i = 0; i < 16; ++i) result.data += static_cast<char>(code(i) | code(i + 16) << 4);
  }
  return result;
}

TEST_F(GgufSegment, GptOssWithExpertsInMxfp4) {
  const Family family = TinyFamily("gpt-oss-20b");
  RandomCheckpoint random(Spec(family), false);
  const weights::ModelSpec& spec = random.spec();
  Tensors tensors = Convert(random, family.architecture);
  std::mt19937 bytes(5);
  for (const int layer : {0, 1}) {
    const std::string block = absl::StrCat("blk.", layer, ".ffn_");
    const auto publish = [&](const std::string& name, int64_t rows, int64_t cols) {
      const std::string whole = absl::StrCat("model.layers.", layer, ".mlp.experts.", name);
      CodesAndScales weight = RandomMxfp4(spec.num_experts, rows, cols, bytes);
      random.tensors().erase(whole);
      random.tensors()[whole + "_blocks"] = weight.codes;
      random.tensors()[whole + "_scales"] = weight.scales;
      return weight;
    };
    const CodesAndScales both = publish("gate_up_proj", 2 * spec.moe_intermediate_size, spec.hidden_size);
    const CodesAndScales down = publish("down_proj", spec.hidden_size, spec.moe_intermediate_size);
    tensors[block + "gate_exps.weight"] = InBlocks(both, 0, 2);
    tensors[block + "up_exps.weight"] = InBlocks(both, 1, 2);
    tensors[block + "down_exps.weight"] = InBlocks(down, 0, 1);
  }
  ExpectSameSegment(random, OpenGguf(family, tensors), R"({"quantization_config": {"quant_method": "mxfp4"}})");
}

TEST_F(GgufSegment, GatesAndUpsAndTheirBiasesInOneTensor) {
  ExpectSameSegment(TinyFamily("gpt-oss-20b"), [](Tensors& tensors) {
    for (const std::string block : {"blk.0.", "blk.1."}) {
      for (const std::string kind : {"_exps.weight", "_exps.bias"}) {
        const Tensor gate = tensors.extract(block + "ffn_gate" + kind).mapped();
        const Tensor up = tensors.extract(block + "ffn_up" + kind).mapped();
        Tensor both = gate;
        both.shape[1] *= 2;
        both.data.clear();
        const size_t bytes = gate.data.size() / static_cast<size_t>(gate.shape[0]);
        for (size_t at = 0; at < gate.data.size(); at += bytes)
          both.data += gate.data.substr(at, bytes) + up.data.substr(at, bytes);
        tensors[block + "ffn_gate_up" + kind] = both;
      }
    }
  });
}

// kv_b_proj as today's converters write it: keys of each head transposed, and values.
void SplitLatents(const weights::ModelSpec& spec, Tensors& tensors) {
  const int64_t latent = spec.kv_lora_rank, nope = spec.qk_nope_head_dim, values = spec.v_head_dim;
  for (const std::string block : {"blk.0.", "blk.1."}) {
    const Tensor both = tensors.extract(block + "attn_kv_b.weight").mapped();
    const auto row_bytes = static_cast<size_t>(RowBytesOf(both));
    Tensor keys = {both.dtype, {spec.num_heads * nope, latent}, ""},
           rest = {both.dtype, {spec.num_heads, values, latent}, ""};
    for (int64_t head = 0; head < spec.num_heads; ++head) {
      const auto first = static_cast<size_t>(head * (nope + values)) * row_bytes;
      keys.data += both.data.substr(first, static_cast<size_t>(nope) * row_bytes);
      rest.data +=
          both.data.substr(first + static_cast<size_t>(nope) * row_bytes, static_cast<size_t>(values) * row_bytes);
    }
    TransposeEach(keys, spec.num_heads);
    tensors[block + "attn_k_b.weight"] = keys;
    tensors[block + "attn_v_b.weight"] = rest;
  }
}

TEST_F(GgufSegment, DeepSeekWithKeysAndValuesApart) {
  for (const char* model : {"deepseek-v3", "deepseek-v2-lite", "kimi-k2"}) {
    SCOPED_TRACE(model);
    const Family family = TinyFamily(model);
    ExpectSameSegment(family, [&](Tensors& tensors) { SplitLatents(Spec(family), tensors); });
  }
}

// Forks write both.
TEST_F(GgufSegment, DeepSeekWithWholeLatentsAndHalves) {
  const Family family = DeepSeekOfHalves();
  ExpectSameSegment(family, [&](Tensors& tensors) {
    Tensors halves = tensors;
    SplitLatents(Spec(family), halves);
    tensors.merge(halves);
  });
}

// A tensor as Q8_0, and what its values are as F16.
struct Quantised {
  std::string blocks;
  std::string rounded;
};
Quantised Quantise(const Tensor& tensor) {
  constexpr size_t kBlock = 32, kBlockBytes = 34;
  Quantised result;
  for (size_t at = 0; at < tensor.data.size(); at += 2 * kBlock) {
    std::string block(kBlockBytes, '\0');
    const uint16_t scale = ToF16(0x1p-7F * static_cast<float>(1 + at % 77) / 77);
    std::memcpy(block.data(), &scale, 2);
    float values[kBlock];
    for (size_t i = 0; i < kBlock; ++i) {
      uint16_t bits = 0;
      std::memcpy(&bits, &tensor.data[at + 2 * i], 2);
      block[2 + i] = static_cast<char>(static_cast<int8_t>(std::lround(FromBf16(bits) * 127)));
    }
    DequantizeRow(DType::kQ8_0, reinterpret_cast<const uint8_t*>(block.data()), kBlock, values);
    for (const float value : values) result.rounded += testing::RawBytes(ToF16(value));
    result.blocks += block;
  }
  return result;
}

// The segment of a file in blocks is that of one whose latents are F16 already.
TEST_F(GgufSegment, LatentsInBlocksAreRoundedToF16) {
  for (const bool halves : {false, true}) {
    SCOPED_TRACE(halves);
    const Family family = halves ? DeepSeekOfHalves() : DeepSeekOfOneTensor();
    const RandomCheckpoint random(Spec(family), false);
    Tensors tensors = Convert(random, family.architecture);
    if (halves) SplitLatents(random.spec(), tensors);
    GgufBuilder in_blocks, rounded;
    AddMetadata(family, &in_blocks);
    AddMetadata(family, &rounded);
    for (auto& [name, tensor] : tensors) {
      if (!absl::StrContains(name, "_b.weight") || absl::StrContains(name, "attn_q_b")) {
        AddTensor(name, tensor, &in_blocks);
      } else {
        const Quantised quantised = Quantise(tensor);
        constexpr uint32_t kQ8_0 = 8;
        in_blocks.Tensor(name, kQ8_0, {tensor.shape.rbegin(), tensor.shape.rend()}, quantised.blocks);
        tensor = {"F16", tensor.shape, quantised.rounded};
      }
      AddTensor(name, tensor, &rounded);
    }
    const auto first = checkpoint::Checkpoint::Open(dir_.Write("blocks.gguf", in_blocks.Build()));
    const auto second = checkpoint::Checkpoint::Open(dir_.Write("rounded.gguf", rounded.Build()));
    ASSERT_TRUE(first.ok()) << first.status();
    ASSERT_TRUE(second.ok()) << second.status();
    const Packed packed = PackInMemory(*first, random.spec()), expected = PackInMemory(*second, random.spec());
    ASSERT_TRUE(packed.status.ok()) << packed.status;
    ASSERT_TRUE(expected.status.ok()) << expected.status;
    ASSERT_EQ(packed.memory.size(), expected.memory.size());
    EXPECT_EQ(std::memcmp(packed.memory.data(), expected.memory.data(), static_cast<size_t>(packed.memory.size())), 0);
  }
}

TEST_F(GgufSegment, LatentsMustFitIntoF16) {
  const Family family = DeepSeekOfHalves();
  const RandomCheckpoint random(Spec(family), false);
  Tensors tensors = Convert(random, family.architecture);
  SplitLatents(random.spec(), tensors);
  Tensor& keys = tensors["blk.1.attn_k_b.weight"];  // the values are F16: both halves become so
  Tensor& values = tensors["blk.1.attn_v_b.weight"];
  values = {"F16", values.shape, std::string(values.data.size(), '\0')};
  const uint16_t large = ToBf16(1e5F);
  std::memcpy(keys.data.data(), &large, 2);
  const auto gguf = OpenGguf(family, tensors);
  ASSERT_TRUE(gguf.ok()) << gguf.status();
  ExpectError(PackInMemory(*gguf, random.spec()).status, absl::StatusCode::kInvalidArgument,
              {"model.gguf: tensor 'model.layers.1.self_attn.k_b_proj.weight'", "not finite as F16"});
}

TEST_F(GgufSegment, HalfOfLatentsIsMissing) {
  const Family family = DeepSeekOfHalves();
  const RandomCheckpoint random(Spec(family), false);
  Tensors tensors = Convert(random, family.architecture);
  SplitLatents(random.spec(), tensors);
  tensors.erase("blk.1.attn_v_b.weight");
  const auto gguf = OpenGguf(family, tensors);
  ASSERT_TRUE(gguf.ok()) << gguf.status();
  ExpectError(checkpoint::CheckInventory(*gguf, random.spec()).status(), absl::StatusCode::kInvalidArgument,
              {"1 problem(s)", "'model.layers.1.self_attn.v_b_proj.weight': missing"});
}

// As the first files of Mixtral.
TEST_F(GgufSegment, ATensorForEachExpert) {
  ExpectSameSegment(TinyFamily("mixtral-8x7b"), [](Tensors& tensors) {
    for (const std::string block : {"blk.0.", "blk.1."}) {
      for (const std::string matrix : {"ffn_gate", "ffn_up", "ffn_down"}) {
        const Tensor stack = tensors.extract(block + matrix + "_exps.weight").mapped();
        const size_t bytes = stack.data.size() / static_cast<size_t>(stack.shape[0]);
        for (size_t e = 0; e < static_cast<size_t>(stack.shape[0]); ++e) {
          tensors[absl::StrCat(block, matrix, ".", e, ".weight")] = {
              stack.dtype, {stack.shape[1], stack.shape[2]}, stack.data.substr(e * bytes, bytes)};
        }
      }
    }
  });
}

TEST_F(GgufSegment, LayersOfMultiTokenPredictionStayBehind) {
  Family family = Glm();
  family.keys["block_count"] = "3";
  family.keys["nextn_predict_layers"] = "1";
  const RandomCheckpoint random(Spec(family), false);
  Tensors tensors = Convert(random, family.architecture);
  tensors["blk.2.nextn.eh_proj.weight"] = {"BF16", {192, 384}, std::string(192 * 384 * 2, '\0')};
  tensors["blk.2.attn_norm.weight"] = {"F32", {192}, std::string(192 * 4, '\0')};
  const auto gguf = OpenGguf(family, tensors);
  ExpectSameSegment(random, gguf);
  std::vector<checkpoint::SkippedTensors> skipped;
  ASSERT_TRUE(checkpoint::CheckInventory(*gguf, random.spec(), nullptr, &skipped).ok());
  ASSERT_EQ(skipped.size(), 1U);
  EXPECT_EQ(skipped[0].group, "multi-token prediction");
  EXPECT_EQ(skipped[0].tensors, 2);
}

TEST_F(GgufSegment, SplitFilesAndADirectory) {
  const Family family = TinyFamily("qwen3-235b");
  const RandomCheckpoint random(Spec(family), false);
  const Tensors tensors = Convert(random, family.architecture);
  GgufBuilder parts[3];
  AddMetadata(family, &parts[0]);
  for (uint32_t i = 0; i < 3; ++i) {
    parts[i]
        .Integer("split.no", i)
        .Integer("split.count", 3)
        .Integer("split.tensors.count", static_cast<uint32_t>(tensors.size()));
  }
  int next = 0;
  for (const auto& [name, tensor] : tensors) AddTensor(name, tensor, &parts[next++ % 3]);
  for (int i = 0; i < 3; ++i) dir_.Write(absl::StrFormat("m-0000%d-of-00003.gguf", i + 1), parts[i].Build());
  ExpectSameSegment(random, checkpoint::Checkpoint::Open(dir_.path() + "/m-00001-of-00003.gguf"));
  const auto by_directory = checkpoint::Checkpoint::Open(dir_.path());
  ExpectSameSegment(random, by_directory);
  dir_.Write("other.gguf", "");
  ExpectError(checkpoint::Checkpoint::Open(dir_.path()).status(), absl::StatusCode::kInvalidArgument,
              {"2 GGUF models", "m-00001-of-00003.gguf, other.gguf"});
}

TEST_F(GgufSegment, FingerprintFollowsTheHeader) {
  Family family = TinyFamily("qwen3-235b");
  const Tensors tensors = Convert(RandomCheckpoint(Spec(family), false), family.architecture);
  const auto first = OpenGguf(family, tensors);
  ASSERT_TRUE(first.ok()) << first.status();
  const auto time = std::filesystem::last_write_time(dir_.path() + "/model.gguf");
  family.keys["unused"] = "5";
  ASSERT_TRUE(OpenGguf(family, tensors).ok());
  std::filesystem::last_write_time(dir_.path() + "/model.gguf", time);
  const auto second = checkpoint::Checkpoint::Open(dir_.path() + "/model.gguf");
  EXPECT_EQ(first->documents().config_json, second->documents().config_json);
  EXPECT_NE(first->fingerprint(), second->fingerprint());
}

TEST_F(GgufSegment, RefusesByTensor) {
  const Family family = TinyFamily("qwen3-235b");
  const Tensors tensors = Convert(RandomCheckpoint(Spec(family), false), family.architecture);
  const auto error = [&](const std::string& name, const Tensor& tensor) {
    Tensors changed = tensors;
    changed[name] = tensor;
    return OpenGguf(family, changed).status();
  };
  constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
  const Tensor vector = {"F32", {192}, std::string(192 * 4, '\0')};
  ExpectError(error("blk.1.attn_sinks.weight", vector), kInvalid, {"'blk.1.attn_sinks.weight'", "has no use for it"});
  ExpectError(error("blk.1.attn_q.bias", vector), kInvalid, {"'blk.1.attn_q.bias'", "has no use for it"});
  ExpectError(error("cls.weight", vector), kInvalid, {"'cls.weight'", "has no use for it"});
  ExpectError(error("blk.1.ffn_gate_exps.weight", vector), kInvalid,
              {"'blk.1.ffn_gate_exps.weight'", "shape [192], expected [3, rows, columns]"});
  ExpectError(error("blk.1.ffn_gate.0.weight", vector), kInvalid, {"mlp.experts.0.gate_proj.weight twice"});
  const Tensor query = {"F32", {384, 192}, std::string(384 * 192 * 4, '\0')};
  ExpectError(error("blk.1.attn_q.weight", query), absl::StatusCode::kUnimplemented,
              {"model.gguf: tensor 'blk.1.attn_q.weight': type F32", "--outtype bf16"});
}

// The second type is a fallback of quantisers for widths that 256 does not divide.
TEST_F(GgufSegment, RefusesTypesWithoutKernels) {
  const Family family = TinyFamily("qwen3-235b");
  GgufBuilder builder;
  AddMetadata(family, &builder);
  for (const auto& [name, tensor] : Convert(RandomCheckpoint(Spec(family), false), family.architecture)) {
    constexpr uint32_t kIq4Nl = 20;
    if (!absl::StrContains(name, "attn_q.")) {
      AddTensor(name, tensor, &builder);
    } else {
      builder.Tensor(name, kIq4Nl, {192, 384}, std::string(192 * 384 / 32 * 18, '\0'));
    }
  }
  ExpectError(checkpoint::Checkpoint::Open(dir_.Write("m.gguf", builder.Build())).status(),
              absl::StatusCode::kUnimplemented,
              {"m.gguf: tensor 'blk.0.attn_q.weight': type IQ4_NL is not supported here", "Q4_K_M", "(and 1 more"});
}

}  // namespace
}  // namespace moestro::store
