#include <gtest/gtest.h>

#include <map>
#include <set>

#include "common/checkpoint/inventory.h"
#include "common/checkpoint/segment_plan.h"
#include "tests/common/checkpoint/checkpoint_test_util.h"
#include "tests/support/families.h"

namespace moestro::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::Pair;
using ::testing::SizeIs;

class InventoryTest : public ::testing::Test {
 protected:
  // Writes `tensors` as a single file and checks it.
  absl::StatusOr<std::vector<checkpoint::InventoryItem>> Check(const SafetensorsBuilder& tensors) {
    dir_.Write("config.json", "{}");
    dir_.Write("model.safetensors", tensors.Build());
    checkpoint_.emplace(checkpoint::Checkpoint::Open(dir_.path()).value());
    warnings_.clear();
    skipped_.clear();
    return checkpoint::CheckInventory(*checkpoint_, spec_, &warnings_, &skipped_);
  }
  void Refuse(const SafetensorsBuilder& tensors, const std::vector<std::string>& parts) {
    const absl::Status status = Check(tensors).status();
    ExpectError(status, kInvalid, {dir_.path()});
    ExpectError(status, kInvalid, parts);
  }

  TempDir dir_;
  weights::ModelSpec spec_ = TinySpec();
  std::optional<checkpoint::Checkpoint> checkpoint_;
  std::vector<std::string> warnings_;
  std::vector<checkpoint::SkippedTensors> skipped_;
};

TEST_F(InventoryTest, NamesAndShapesInOrderOfUse) {
  const std::vector<model::ModelTensor> tensors = model::CheckpointTensors(spec_);
  std::map<std::string, model::ModelTensor> by_name;
  for (const model::ModelTensor& tensor : tensors) by_name.emplace(tensor.name, tensor);
  ASSERT_EQ(by_name.size(), tensors.size());
  EXPECT_EQ(tensors.size(), 3u + 2 * 9 + 3 + 2 + 8 * 3 + 3);
  EXPECT_EQ(tensors.front().name, "model.embed_tokens.weight");
  EXPECT_EQ(tensors.back().name, "lm_head.weight");
  const auto shape = [&](const std::string& name) { return by_name.at(name).shape(); };
  EXPECT_THAT(shape("model.embed_tokens.weight"), ElementsAre(40, 64));
  EXPECT_THAT(shape("model.layers.0.self_attn.q_a_proj.weight"), ElementsAre(32, 64));
  EXPECT_THAT(shape("model.layers.0.self_attn.q_b_proj.weight"), ElementsAre(160, 32));
  EXPECT_THAT(shape("model.layers.0.self_attn.kv_a_proj_with_mqa.weight"), ElementsAre(80, 64));
  EXPECT_THAT(shape("model.layers.0.self_attn.kv_a_layernorm.weight"), ElementsAre(64));
  EXPECT_THAT(shape("model.layers.0.self_attn.kv_b_proj.weight"), ElementsAre(256, 64));
  EXPECT_THAT(shape("model.layers.0.self_attn.o_proj.weight"), ElementsAre(64, 128));
  EXPECT_THAT(shape("model.layers.0.mlp.gate_proj.weight"), ElementsAre(96, 64));
  EXPECT_THAT(shape("model.layers.0.mlp.down_proj.weight"), ElementsAre(64, 96));
  EXPECT_THAT(shape("model.layers.1.mlp.gate.weight"), ElementsAre(8, 64));
  EXPECT_THAT(shape("model.layers.1.mlp.gate.e_score_correction_bias"), ElementsAre(8));
  EXPECT_THAT(shape("model.layers.1.mlp.experts.7.down_proj.weight"), ElementsAre(64, 32));
  EXPECT_THAT(shape("model.layers.1.mlp.shared_experts.up_proj.weight"), ElementsAre(32, 64));
  EXPECT_EQ(by_name.at("model.layers.1.mlp.gate.weight").role, model::TensorRole::kRouter);
  EXPECT_EQ(by_name.at("lm_head.weight").role, model::TensorRole::kHead);
}

TEST_F(InventoryTest, QueriesWithoutRank) {
  spec_.q_lora_rank = 0;
  const auto items = Check(TinyTensors(spec_));
  ASSERT_TRUE(items.ok()) << items.status();
  const auto queries = std::ranges::find_if(*items, [](const checkpoint::InventoryItem& item) {
    return item.expected.name == "model.layers.0.self_attn.q_proj.weight";
  });
  ASSERT_NE(queries, items->end());
  EXPECT_THAT(queries->expected.shape(), ElementsAre(160, 64));
  EXPECT_EQ(items->size(), 3u + 2 * 7 + 3 + 2 + 8 * 3 + 3);
}

// The checkpoint has the family's names, the segment its own.
TEST_F(InventoryTest, MixtralsNames) {
  spec_ = Parse(TinyFamily("mixtral-8x7b").config).value();
  const auto items = Check(TinyTensors(spec_));
  ASSERT_TRUE(items.ok()) << items.status();
  EXPECT_THAT(warnings_, IsEmpty());
  const auto plan = checkpoint::MakePlan(*items, spec_);
  ASSERT_TRUE(plan.ok()) << plan.status();
  std::map<std::string, std::string> sources;
  for (size_t i = 0; i < plan->tensors.size(); ++i) {
    sources[plan->tensors[i].name] = plan->sources[i].weight.info->name;
  }
  EXPECT_EQ(sources.size(), 3u + 2 * (2 + 4 + 1 + 3 * 3));
  EXPECT_EQ(sources.at("model.embed_tokens.weight"), "model.embed_tokens.weight");
  const auto in_layer = [&](const char* name) { return sources.at(std::string("model.layers.1.") + name); };
  EXPECT_EQ(in_layer("self_attn.q_proj.weight"), "model.layers.1.self_attn.q_proj.weight");
  EXPECT_EQ(in_layer("mlp.gate.weight"), "model.layers.1.block_sparse_moe.gate.weight");
  EXPECT_EQ(in_layer("mlp.experts.2.gate_proj.weight"), "model.layers.1.block_sparse_moe.experts.2.w1.weight");
  EXPECT_EQ(in_layer("mlp.experts.2.up_proj.weight"), "model.layers.1.block_sparse_moe.experts.2.w3.weight");
  EXPECT_EQ(in_layer("mlp.experts.2.down_proj.weight"), "model.layers.1.block_sparse_moe.experts.2.w2.weight");
  SafetensorsBuilder lacking = TinyTensors(spec_);
  lacking.Remove("model.layers.0.block_sparse_moe.experts.1.w2.weight");
  Refuse(lacking, {"1 problem", "'model.layers.0.block_sparse_moe.experts.1.w2.weight'", "missing"});
}

TEST_F(InventoryTest, GlmsBiasesKeepTheirNumbers) {
  spec_ = Parse(TinyFamily("glm-4.5-air").config).value();
  const std::string name = "model.layers.1.self_attn.k_proj.bias";
  for (const char* dtype : {"BF16", "F16", "F32"}) {
    const auto items = Check(TinyTensors(spec_).Add(name, dtype, {128}));
    ASSERT_TRUE(items.ok()) << items.status();
    EXPECT_THAT(warnings_, IsEmpty());
    const auto plan = checkpoint::MakePlan(*items, spec_);
    ASSERT_TRUE(plan.ok()) << plan.status();
    const auto bias = std::ranges::find(plan->tensors, name, &weights::TensorPlan::name);
    ASSERT_TRUE(bias != plan->tensors.end());
    EXPECT_EQ(bias->dtype, DType::kF32);
    EXPECT_EQ(bias->layout, weights::TensorLayout::kRowMajor);
  }
  Refuse(TinyTensors(spec_).Add(name, "F8_E4M3", {128}),
         {"'" + name + "'", "dtype F8_E4M3, expected F32 or BF16 or F16"});
  Refuse(TinyTensors(spec_).Add(name, "BF16", {64}), {"'" + name + "'", "shape [64], expected [128]"});
  Refuse(TinyTensors(spec_).Remove(name), {"1 problem", "'" + name + "'", "missing"});
}

TEST_F(InventoryTest, MiniMaxsRouterBiasIsBesideTheRouter) {
  spec_ = Parse(TinyFamily("minimax-m2").config).value();
  const auto items = Check(TinyTensors(spec_));
  ASSERT_TRUE(items.ok()) << items.status();
  EXPECT_THAT(warnings_, IsEmpty());
  const std::string name = "model.layers.1.block_sparse_moe.e_score_correction_bias";
  Refuse(TinyTensors(spec_).Remove(name), {"1 problem", "'" + name + "'", "missing"});
  // The norms are over all heads.
  const std::string norm = "model.layers.0.self_attn.q_norm.weight";
  Refuse(TinyTensors(spec_).Add(norm, "BF16", {128}), {"'" + norm + "'", "shape [128], expected [384]"});
}

TEST_F(InventoryTest, Qwen2sNames) {
  spec_ = Parse(TinyFamily("qwen2-57b").config).value();
  std::map<std::string, model::ModelTensor> by_name;
  for (const model::ModelTensor& tensor : model::CheckpointTensors(spec_)) by_name.emplace(tensor.name, tensor);
  const auto shape = [&](const char* name) { return by_name.at(std::string("model.layers.0.") + name).shape(); };
  EXPECT_EQ(by_name.size(), 3u + 2 * (2 + 4 + 3 + 1 + 3 * 3 + 3 + 1));
  EXPECT_THAT(shape("self_attn.k_proj.bias"), ElementsAre(64));
  EXPECT_THAT(shape("mlp.gate.weight"), ElementsAre(3, 192));
  EXPECT_THAT(shape("mlp.experts.2.down_proj.weight"), ElementsAre(192, 80));
  EXPECT_THAT(shape("mlp.shared_expert.down_proj.weight"), ElementsAre(192, 72));
  EXPECT_THAT(shape("mlp.shared_expert_gate.weight"), ElementsAre(1, 192));
  const auto items = Check(TinyTensors(spec_));
  ASSERT_TRUE(items.ok()) << items.status();
  EXPECT_THAT(warnings_, IsEmpty());
  EXPECT_TRUE(checkpoint::MakePlan(*items, spec_).ok());
}

// Queries, keys and values are rows of one tensor; experts are stacked, their downs transposed.
TEST_F(InventoryTest, DbrxsTensors) {
  spec_ = Parse(TinyFamily("dbrx").config).value();
  const auto items = Check(TinyTensors(spec_));
  ASSERT_TRUE(items.ok()) << items.status();
  EXPECT_THAT(warnings_, IsEmpty());
  EXPECT_EQ(items->size(), 3u + 2 * (2 + 4 + 1 + 3 * 3)) << "one for each part";
  EXPECT_EQ(items->front().expected.name, "transformer.wte.weight");
  const auto plan = checkpoint::MakePlan(*items, spec_);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->tensors.size(), 3u + 2 * (2 + 4 + 1 + 3 * 3));
  const auto expect = [&](const char* name, const char* published, std::vector<int64_t> shape, int64_t first_row,
                          bool transposed) {
    const std::string full = std::string("model.layers.1.") + name;
    const auto tensor = std::ranges::find(plan->tensors, full, &weights::TensorPlan::name);
    ASSERT_NE(tensor, plan->tensors.end()) << full;
    const checkpoint::TensorSource& source = plan->sources[tensor - plan->tensors.begin()];
    EXPECT_EQ(source.weight.info->name, std::string("transformer.blocks.1.") + published);
    EXPECT_EQ(source.weight.info->shape, shape) << full;
    EXPECT_EQ(source.weight.offset, first_row * shape[1] * 2) << full;
    EXPECT_EQ(source.kind == checkpoint::TensorSource::Kind::kTransposed, transposed) << full;
  };
  expect("self_attn.q_proj.weight", "norm_attn_norm.attn.Wqkv.weight", {320, 192}, 0, false);
  expect("self_attn.k_proj.weight", "norm_attn_norm.attn.Wqkv.weight", {320, 192}, 192, false);
  expect("self_attn.v_proj.weight", "norm_attn_norm.attn.Wqkv.weight", {320, 192}, 256, false);
  expect("self_attn.o_proj.weight", "norm_attn_norm.attn.out_proj.weight", {192, 192}, 0, false);
  expect("mlp.gate.weight", "ffn.router.layer.weight", {3, 192}, 0, false);
  expect("mlp.experts.0.gate_proj.weight", "ffn.experts.mlp.w1", {240, 192}, 0, false);
  expect("mlp.experts.2.up_proj.weight", "ffn.experts.mlp.v1", {240, 192}, 160, false);
  expect("mlp.experts.2.down_proj.weight", "ffn.experts.mlp.w2", {240, 192}, 160, true);
  SafetensorsBuilder tensors = TinyTensors(spec_);
  tensors.Add("transformer.blocks.0.ffn.experts.mlp.w2", "F8_E4M3", {240, 192});
  Refuse(tensors, {"1 problem", "'transformer.blocks.0.ffn.experts.mlp.w2'", "dtype F8_E4M3, expected BF16 or F16"});
}

// The experts of a layer are one tensor, in which gates and ups alternate; so are their biases.
TEST_F(InventoryTest, GptOssTensors) {
  spec_ = Parse(TinyFamily("gpt-oss-20b").config).value();
  const auto items = Check(TinyTensors(spec_));
  ASSERT_TRUE(items.ok()) << items.status();
  EXPECT_THAT(warnings_, IsEmpty());
  EXPECT_EQ(items->size(), 3u + 2 * (2 + 8 + 1 + 2 + 3 * 6)) << "one for each part";
  const auto plan = checkpoint::MakePlan(*items, spec_);
  ASSERT_TRUE(plan.ok()) << plan.status();
  const auto expect = [&](const char* name, const char* published, std::vector<int64_t> shape, int64_t first,
                          int64_t output_step, bool transposed) {
    const std::string full = std::string("model.layers.1.") + name;
    const auto tensor = std::ranges::find(plan->tensors, full, &weights::TensorPlan::name);
    ASSERT_NE(tensor, plan->tensors.end()) << full;
    const checkpoint::TensorSource& source = plan->sources[tensor - plan->tensors.begin()];
    EXPECT_EQ(source.weight.info->name, std::string("model.layers.1.") + published);
    EXPECT_EQ(source.weight.info->shape, shape) << full;
    EXPECT_EQ(source.weight.offset, first * source.weight.info->element_bytes()) << full;
    EXPECT_EQ(source.output_step, output_step) << full;
    EXPECT_EQ(source.kind == checkpoint::TensorSource::Kind::kTransposed, transposed) << full;
  };
  expect("self_attn.sinks", "self_attn.sinks", {3}, 0, 1, false);
  expect("self_attn.o_proj.bias", "self_attn.o_proj.bias", {192}, 0, 1, false);
  expect("mlp.gate.weight", "mlp.router.weight", {3, 192}, 0, 1, false);
  expect("mlp.gate.bias", "mlp.router.bias", {3}, 0, 1, false);
  expect("mlp.experts.0.gate_proj.weight", "mlp.experts.gate_up_proj", {3, 192, 320}, 0, 2, true);
  expect("mlp.experts.2.up_proj.weight", "mlp.experts.gate_up_proj", {3, 192, 320}, 2 * 192 * 320 + 1, 2, true);
  expect("mlp.experts.1.down_proj.weight", "mlp.experts.down_proj", {3, 160, 192}, 160 * 192, 1, true);
  expect("mlp.experts.1.gate_proj.bias", "mlp.experts.gate_up_proj_bias", {3, 320}, 320, 2, false);
  expect("mlp.experts.2.up_proj.bias", "mlp.experts.gate_up_proj_bias", {3, 320}, 641, 2, false);
  expect("mlp.experts.2.down_proj.bias", "mlp.experts.down_proj_bias", {3, 192}, 384, 1, false);
  SafetensorsBuilder tensors = TinyTensors(spec_);
  tensors.Add("model.layers.0.mlp.experts.down_proj", "BF16", {3, 192, 160});
  Refuse(tensors,
         {"1 problem", "'model.layers.0.mlp.experts.down_proj'", "shape [3, 192, 160], expected [3, 160, 192]"});
}

// Some tools save a tied head all the same. It is a copy.
TEST_F(InventoryTest, ATiedHead) {
  const SafetensorsBuilder with_head = TinyTensors(spec_);
  spec_.tied_head = 1;
  const auto items = Check(TinyTensors(spec_));
  ASSERT_TRUE(items.ok()) << items.status();
  EXPECT_THAT(warnings_, IsEmpty());
  EXPECT_EQ(items->back().expected.name, "model.norm.weight");
  ASSERT_TRUE(Check(with_head).ok());
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("'lm_head.weight'")));
}

// DeepSeek-V2-Lite: no rank of queries, no biases of the router, two shared experts as one.
TEST_F(InventoryTest, DeepSeekV2Lite) {
  spec_ = Parse(TinyFamily("deepseek-v2-lite").config).value();
  const auto items = Check(TinyTensors(spec_));
  ASSERT_TRUE(items.ok()) << items.status();
  EXPECT_THAT(warnings_, IsEmpty());
  std::map<std::string, std::vector<int64_t>> shapes;
  for (const checkpoint::InventoryItem& item : *items) shapes[item.expected.name] = item.expected.shape();
  EXPECT_EQ(shapes.size(), 3u + 2 * 7 + 3 + 1 + 3 * 3 + 3);
  EXPECT_THAT(shapes.at("model.layers.1.self_attn.q_proj.weight"), ElementsAre(3 * 192, 192));
  EXPECT_THAT(shapes.at("model.layers.1.mlp.shared_experts.gate_proj.weight"), ElementsAre(160, 192));
  EXPECT_THAT(shapes.at("model.layers.1.mlp.gate.weight"), ElementsAre(3, 192));
  EXPECT_EQ(shapes.count("model.layers.1.mlp.gate.e_score_correction_bias"), 0u);
}

TEST_F(InventoryTest, NoSharedExperts) {
  spec_.num_shared_experts = 0;
  for (const model::ModelTensor& tensor : model::CheckpointTensors(spec_))
    EXPECT_THAT(tensor.name, Not(HasSubstr("shared_experts")));
}

TEST_F(InventoryTest, Bf16Checkpoint) {
  const auto items = Check(TinyTensors(spec_));
  ASSERT_TRUE(items.ok()) << items.status();
  EXPECT_EQ(items->size(), model::CheckpointTensors(spec_).size());
  EXPECT_THAT(warnings_, IsEmpty());
  for (const checkpoint::InventoryItem& item : *items) {
    EXPECT_EQ(item.weight.info->name, item.expected.name);
    EXPECT_FALSE(item.scale.has_value());
  }
}

TEST_F(InventoryTest, Fp8CheckpointWithScalesInAnotherShard) {
  spec_ = TinySpec(128);
  const SafetensorsBuilder all = TinyTensors(spec_, /*fp8=*/true);
  std::map<std::string, SafetensorsBuilder> shards = {{"scales.safetensors", all}, {"weights.safetensors", all}};
  for (const std::string& name : all.Names()) {
    shards[name.ends_with("_scale_inv") ? "weights.safetensors" : "scales.safetensors"].Remove(name);
  }
  for (const auto& [file, builder] : shards) dir_.Write(file, builder.Build());
  dir_.Write("config.json", "{}");
  dir_.Write("model.safetensors.index.json", Index(shards));
  const auto checkpoint = checkpoint::Checkpoint::Open(dir_.path());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  const auto items = checkpoint::CheckInventory(*checkpoint, spec_);
  ASSERT_TRUE(items.ok()) << items.status();
  for (const checkpoint::InventoryItem& item : *items) {
    ASSERT_EQ(item.scale.has_value(), model::IsLinear(item.expected.role)) << item.expected.name;
    if (!item.scale) continue;
    EXPECT_EQ(item.scale->info->name, item.expected.name + "_scale_inv");
    EXPECT_EQ(item.scale->shard, 0);
    EXPECT_EQ(item.weight.shard, 1);
  }
}

TEST_F(InventoryTest, RaggedScaleBlocks) {
  spec_ = TinySpec(128);
  const auto items = Check(TinyTensors(spec_, true));
  ASSERT_TRUE(items.ok()) << items.status();
  for (const checkpoint::InventoryItem& item : *items) {
    // 2 heads of 128 + 16 rows: the third block of rows is partial.
    if (!item.expected.name.ends_with("q_b_proj.weight")) continue;
    EXPECT_THAT(item.scale->info->shape, ElementsAre(3, 1));
  }
}

TEST_F(InventoryTest, OtherPrecisionsThatAreFine) {
  SafetensorsBuilder tensors = TinyTensors(spec_);
  tensors.Add("model.norm.weight", "F32", {64}).Add("model.layers.1.mlp.gate.weight", "F32", {8, 64});
  EXPECT_TRUE(Check(tensors).ok());
}

// GPTQ's tools write a bias for every layer. Zeros change nothing; of others the model would compute something else.
TEST_F(InventoryTest, BiasesThatTheFamilyDoesNotHave) {
  const std::string name = "model.layers.1.mlp.experts.3.up_proj.bias";
  SafetensorsBuilder tensors = TinyTensors(spec_);
  tensors.Add(name, "F16", {32});
  EXPECT_TRUE(Check(tensors).ok());
  EXPECT_THAT(warnings_, IsEmpty());
  ASSERT_EQ(skipped_.size(), 1u);
  EXPECT_EQ(skipped_[0].group, "biases of zero");
  EXPECT_EQ(skipped_[0].tensors, 1);
  EXPECT_EQ(skipped_[0].bytes, 64);
  tensors.Add(name, "F16", {32}, std::string(63, '\0') + '\1');
  Refuse(tensors, {"1 problem", "'" + name + "'", "a bias where this family has none; get the model without it"});
  tensors.Remove(name).Add("model.layers.1.input_layernorm.bias", "BF16", {1}, std::string(2, '\1'));
  Refuse(tensors, {"'model.layers.1.input_layernorm.bias'", "a bias where this family has none"});
}

TEST_F(InventoryTest, MissingTensorsAreNamedExactly) {
  SafetensorsBuilder tensors = TinyTensors(spec_);
  tensors.Remove("model.layers.1.mlp.experts.3.up_proj.weight").Remove("lm_head.weight");
  Refuse(tensors,
         {"2 problem(s)", "'model.layers.1.mlp.experts.3.up_proj.weight': missing", "'lm_head.weight': missing"});
}

TEST_F(InventoryTest, AtMostTenProblemsAreListed) {
  SafetensorsBuilder tensors = TinyTensors(spec_);
  for (const char* part : {"gate", "up", "down"}) {
    for (int expert = 0; expert < 4; ++expert) {
      tensors.Remove("model.layers.1.mlp.experts." + std::to_string(expert) + "." + part + "_proj.weight");
    }
  }
  Refuse(tensors, {"12 problem(s)", "experts.3.gate_proj", "; and 2 more"});
  EXPECT_THAT(std::string(Check(tensors).status().message()), Not(HasSubstr("experts.3.up_proj")));
}

TEST_F(InventoryTest, WrongShapesAndDTypes) {
  struct Case {
    std::string name, dtype;
    std::vector<int64_t> shape;
    std::string part;
  };
  const std::vector<Case> cases = {
      {"lm_head.weight", "BF16", {39, 64}, "shape [39, 64], expected [40, 64]"},
      {"model.norm.weight", "BF16", {64, 1}, "shape [64, 1], expected [64]"},
      {"model.norm.weight", "I64", {64}, "dtype I64, expected F32 or BF16 or F16"},
      {"model.embed_tokens.weight", "F32", {40, 64}, "dtype F32, expected BF16"},
      {"model.layers.0.mlp.up_proj.weight", "F32", {96, 64}, "dtype F32, expected F8_E4M3 or BF16"},
      {"model.layers.0.mlp.up_proj.weight",
       "I64",
       {96, 64},
       "dtype I64, expected F8_E4M3 or BF16 or F16 or Q8_0 or Q4_0 or Q5_0 or Q4_K or Q5_K or Q6_K or MXFP4 or Q4_1 or "
       "Q5_1; get the "
       "model with such weights, or save it so"},
      {"model.layers.0.self_attn.kv_b_proj.weight",
       "F32",
       {256, 64},
       "dtype F32, expected F8_E4M3 or BF16 or F16 or Q8_0 or"},
      {"model.layers.1.mlp.gate.weight", "F8_E4M3", {8, 64}, "dtype F8_E4M3, expected F32 or BF16 or F16"},
      {"model.layers.1.mlp.gate.e_score_correction_bias", "I64", {8}, "dtype I64, expected F32"},
      {"model.layers.1.mlp.gate.e_score_correction_bias", "F32", {4}, "shape [4], expected [8]"},
  };
  for (const Case& wrong : cases) {
    SafetensorsBuilder tensors = TinyTensors(spec_);
    tensors.Add(wrong.name, wrong.dtype, wrong.shape);
    Refuse(tensors, {"1 problem(s)", "'" + wrong.name + "' (" + dir_.path() + "/model.safetensors)", wrong.part});
  }
}

TEST_F(InventoryTest, F16StaysAsItIs) {
  SafetensorsBuilder tensors = TinyTensors(spec_);
  const std::string up = "model.layers.0.mlp.up_proj.weight", norm = "model.norm.weight";
  tensors.Add("model.embed_tokens.weight", "F16", {40, 64}).Add("lm_head.weight", "F16", {40, 64});
  tensors.Add(up, "F16", {96, 64}).Add(norm, "F16", {64});
  const auto items = Check(tensors);
  ASSERT_TRUE(items.ok()) << items.status();
  const auto plan = checkpoint::MakePlan(*items, spec_);
  ASSERT_TRUE(plan.ok()) << plan.status();
  for (const weights::TensorPlan& tensor : plan->tensors) {
    const bool is_f16 =
        tensor.name == up || tensor.name == "model.embed_tokens.weight" || tensor.name == "lm_head.weight";
    EXPECT_EQ(tensor.dtype == DType::kF16, is_f16) << tensor.name;
    if (tensor.name == norm) {
      EXPECT_EQ(tensor.dtype, DType::kF32);
    }
  }
}

TEST_F(InventoryTest, ScalesBelongToFp8Weights) {
  const std::string name = "model.layers.0.mlp.up_proj.weight";
  const std::string scale = name + "_scale_inv";
  spec_ = TinySpec(128);
  Refuse(TinyTensors(spec_, true).Remove(scale),
         {"1 problem(s)", "'" + scale + "'", "missing, but its weight is F8_E4M3"});
  Refuse(TinyTensors(spec_, true).Add(scale, "I64", {1, 1}), {"'" + scale + "'", "dtype I64, expected F32"});
  Refuse(TinyTensors(spec_, true).Add(scale, "F32", {1, 2}), {"'" + scale + "'", "shape [1, 2], expected [1, 1]"});
  Refuse(TinyTensors(spec_, true).Add(scale, "F32", {1}), {"'" + scale + "'", "shape [1], expected [1, 1]"});
  Refuse(TinyTensors(spec_).Add(scale, "F32", {1, 1}), {"'" + scale + "'", "without an F8_E4M3 weight"});
  Refuse(TinyTensors(spec_).Add("model.norm.weight_scale_inv", "F32", {1}),
         {"'model.norm.weight_scale_inv'", "without"});
  Refuse(TinyTensors(spec_, true).Remove(name), {"1 problem(s)", "'" + name + "': missing"});
}

TEST_F(InventoryTest, Fp8ScaleBlocksMustNotStraddleKeysAndValues) {
  Refuse(TinyTensors(spec_, true),
         {"2 problem(s)", "'model.layers.0.self_attn.kv_b_proj.weight'", "'model.layers.1.self_attn.kv_b_proj.weight'",
          "qk_nope_head_dim", "v_head_dim", "multiples of 128"});
  // The other linears may still be FP8.
  SafetensorsBuilder tensors = TinyTensors(spec_, true);
  for (const std::string layer : {"0", "1"}) {
    const std::string name = "model.layers." + layer + ".self_attn.kv_b_proj.weight";
    tensors.Add(name, "BF16", {256, 64}).Remove(name + "_scale_inv");
  }
  EXPECT_TRUE(Check(tensors).ok());
}

TEST_F(InventoryTest, TensorsThatAreLeftOutAreCountedByGroup) {
  SafetensorsBuilder tensors = TinyTensors(spec_);
  tensors.Add("model.layers.2.eh_proj.weight", "BF16", {64, 128})
      .Add("model.layers.2.mlp.up_proj.weight_scale_inv", "F32", {1, 1})
      .Add("model.layers.10.enorm.weight", "BF16", {64})
      .Add("model.layers.0.self_attn.rotary_emb.inv_freq", "F32", {8})
      .Add("model.visual.blocks.0.attn.weight", "F16", {3, 2})
      .Add("vision_tower.patch_embed.weight_scale_inv", "F32", {1, 1});
  const auto items = Check(tensors);
  ASSERT_TRUE(items.ok()) << items.status();
  EXPECT_THAT(warnings_, IsEmpty());
  std::map<std::string, std::pair<int64_t, int64_t>> groups;
  for (const checkpoint::SkippedTensors& group : skipped_) groups[group.group] = {group.tensors, group.bytes};
  EXPECT_THAT(groups, ElementsAre(Pair("images and sounds", Pair(2, 16)),
                                  Pair("multi-token prediction", Pair(3, 64 * 128 * 2 + 4 + 128)),
                                  Pair("rotary tables", Pair(1, 32))));
}

TEST_F(InventoryTest, UnknownTensorsWarn) {
  SafetensorsBuilder tensors = TinyTensors(spec_);
  tensors.Add("model.layers.1.mlp.experts.8.up_proj.weight", "BF16", {32, 64}).Add("vision.weight", "BF16", {1});
  ASSERT_TRUE(Check(tensors).ok());
  ASSERT_THAT(warnings_, SizeIs(1));
  EXPECT_THAT(warnings_[0], HasSubstr("2 tensor(s)"));
  EXPECT_THAT(warnings_[0], HasSubstr("'model.layers.1.mlp.experts.8.up_proj.weight'"));
}

}  // namespace
}  // namespace moestro::testing
