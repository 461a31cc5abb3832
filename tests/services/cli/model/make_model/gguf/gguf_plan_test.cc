// Files that make-model writes in GGUF open as checkpoints of the model.
#include "services/cli/model/make_model/gguf/gguf_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>

#include "common/checkpoint/checkpoint.h"
#include "common/checkpoint/config.h"
#include "common/checkpoint/inventory.h"
#include "services/cli/model/make_model/make_model.h"

namespace moestro::cli {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class MakeGguf : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = fs::path(::testing::TempDir()) / (std::string("make_gguf-") + std::to_string(getpid()) +
                                              ::testing::UnitTest::GetInstance()->current_test_info()->name());
    fs::remove_all(root_);
    fs::create_directories(root_);
  }
  void TearDown() override { fs::remove_all(root_); }

  std::string Path(const char* name) const { return (root_ / name).string(); }

  fs::path root_;
};

std::map<std::string, DType> Types(const std::string& preset, const std::string& weights) {
  const auto model = ResolveModel({.preset = preset, .out_dir = "m.gguf", .weights = weights});
  EXPECT_TRUE(model.ok()) << model.status();
  std::map<std::string, DType> types;
  for (const GgufTensor& tensor : PlanGguf(*model, preset).tensors) types[tensor.name] = tensor.type;
  return types;
}

TEST_F(MakeGguf, OpensAsTheModel) {
  for (const char* preset :
       {"tiny", "tiny-qwen3", "tiny-qwen2", "tiny-mixtral", "tiny-deepseek-v2", "tiny-deepseek-v2-lite", "tiny-dbrx",
        "tiny-glm", "tiny-llama", "tiny-gpt-oss", "tiny-minimax"}) {
    for (const char* weights : {"bf16", "q4_k_m"}) {
      SCOPED_TRACE(std::string(preset) + " " + weights);
      const MakeModelOptions options = {.preset = preset, .out_dir = Path("m.gguf"), .weights = weights, .force = true};
      ASSERT_TRUE(MakeModel(options, nullptr).ok());
      const auto checkpoint = checkpoint::Checkpoint::Open(options.out_dir);
      ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
      auto spec = checkpoint::ParseModelSpec(checkpoint->documents().config_json, "");
      ASSERT_TRUE(spec.ok()) << spec.status();
      const weights::ModelSpec expected = ResolveModel(options)->spec;
      EXPECT_STREQ(spec->family, expected.family);
      EXPECT_EQ(spec->hidden_size, expected.hidden_size);
      EXPECT_EQ(spec->num_experts, expected.num_experts);
      EXPECT_EQ(spec->routed_scaling_factor, expected.routed_scaling_factor);
      EXPECT_EQ(spec->rope_theta, expected.rope_theta);
      EXPECT_EQ(spec->clip_qkv, expected.clip_qkv);
      EXPECT_EQ(spec->yarn.mscale_all_dim, expected.yarn.mscale_all_dim);
      EXPECT_EQ(spec->num_expert_groups, expected.num_expert_groups);
      EXPECT_EQ(spec->sliding_window, expected.sliding_window);
      EXPECT_EQ(spec->windowed_layers[0], expected.windowed_layers[0]);
      EXPECT_EQ(spec->swiglu_limit, expected.swiglu_limit);
      EXPECT_EQ(spec->yarn.factor, expected.yarn.factor);
      EXPECT_EQ(spec->yarn_between_pairs, expected.yarn_between_pairs);
      EXPECT_EQ(spec->rotated_dims(), expected.rotated_dims());
      const auto inventory = checkpoint::CheckInventory(*checkpoint, *spec);
      EXPECT_TRUE(inventory.ok()) << inventory.status();
      EXPECT_FALSE(checkpoint->documents().tokenizer_json.empty());
    }
  }
}

TEST_F(MakeGguf, TypesOfQ4KM) {
  const auto types = Types("tiny-mixtral", "q4_k_m");
  EXPECT_EQ(types.at("token_embd.weight"), DType::kQ4K);
  EXPECT_EQ(types.at("output.weight"), DType::kQ6K);
  EXPECT_EQ(types.at("output_norm.weight"), DType::kF32);
  EXPECT_EQ(types.at("blk.0.attn_q.weight"), DType::kQ4K);
  EXPECT_EQ(types.at("blk.0.attn_v.weight"), DType::kQ8_0);
  EXPECT_EQ(types.at("blk.0.attn_output.weight"), DType::kQ5K);
  EXPECT_EQ(types.at("blk.0.ffn_gate_inp.weight"), DType::kF32);
  EXPECT_EQ(types.at("blk.0.ffn_gate_exps.weight"), DType::kQ4K);
  EXPECT_EQ(types.at("blk.0.ffn_down_exps.weight"), DType::kQ5_0) << "rows of 192";
  EXPECT_EQ(types.at("blk.2.ffn_down_exps.weight"), DType::kQ8_0) << "rows of 192, with more bits";
  EXPECT_EQ(Types("tiny-qwen3", "q4_k_m").at("blk.2.attn_v.weight"), DType::kQ6K);
  EXPECT_EQ(Types("tiny-dbrx", "q4_k_m").at("blk.0.attn_qkv.weight"), DType::kQ8_0);
  EXPECT_EQ(Types("tiny-llama", "q4_0").at("token_embd.weight"), DType::kQ6K) << "it is the head, too";
}

// As gpt-oss is published.
TEST_F(MakeGguf, TypesOfMxfp4) {
  const auto types = Types("tiny-gpt-oss-32", "mxfp4");
  for (const char* expert : {"blk.0.ffn_gate_exps", "blk.0.ffn_up_exps", "blk.2.ffn_down_exps"}) {
    EXPECT_EQ(types.at(std::string(expert) + ".weight"), DType::kMXFP4);
    EXPECT_EQ(types.at(std::string(expert) + ".bias"), DType::kF32);
  }
  for (const char* name : {"token_embd.weight", "output.weight", "blk.0.attn_q.weight", "blk.0.attn_output.weight"}) {
    EXPECT_EQ(types.at(name), DType::kBF16) << name;
  }
  for (const char* name : {"blk.0.attn_sinks.weight", "blk.0.attn_output.bias", "blk.0.ffn_gate_inp.bias",
                           "blk.0.ffn_gate_inp.weight", "blk.0.post_attention_norm.weight"}) {
    EXPECT_EQ(types.at(name), DType::kF32) << name;
  }
}

TEST_F(MakeGguf, ReplacesOnlyAFileInGguf) {
  MakeModelOptions options = {.preset = "tiny-llama", .out_dir = Path("m.gguf"), .layers = 1, .weights = "q8_0"};
  ASSERT_TRUE(MakeModel(options, nullptr).ok());
  EXPECT_FALSE(fs::exists(Path("m.gguf.partial")));
  EXPECT_THAT(std::string(MakeModel(options, nullptr).message()), HasSubstr("m.gguf exists; pass --force"));
  options.force = true;
  EXPECT_TRUE(MakeModel(options, nullptr).ok());
  std::ofstream(Path("m.gguf")) << "a note";
  EXPECT_THAT(std::string(MakeModel(options, nullptr).message()), HasSubstr("does not begin with GGUF"));
  options.out_dir = Path("d.gguf");
  fs::create_directory(options.out_dir);
  EXPECT_THAT(std::string(MakeModel(options, nullptr).message()), HasSubstr("is not a file"));
}

TEST_F(MakeGguf, RefusesWhatTheFormatLacks) {
  const auto message = [](MakeModelOptions options) { return std::string(ResolveModel(options).status().message()); };
  EXPECT_THAT(message({.out_dir = "m", .weights = "q4_0"}), HasSubstr("--weights q4_0 is a type of GGUF"));
  EXPECT_THAT(message({.out_dir = "m.gguf", .weights = "fp8"}), HasSubstr("--weights fp8 is no type of GGUF"));
  EXPECT_THAT(message({.out_dir = "m.gguf", .shard_bytes = 1}), HasSubstr("--shard-bytes"));
  EXPECT_THAT(message({.preset = "tiny-gpt-oss", .out_dir = "m.gguf", .weights = "mxfp4"}),
              HasSubstr("experts whose rows are no whole groups"));
  EXPECT_THAT(message({.preset = "tiny-llama", .out_dir = "m.gguf", .weights = "mxfp4"}),
              HasSubstr("no routed experts"));
  for (const char* preset : {"tiny-qwen3-mixed", "tiny-kimi-k2"}) {
    EXPECT_THAT(message({.preset = preset, .out_dir = "m.gguf"}),
                HasSubstr(preset + std::string(" has no form in GGUF")));
  }
}

}  // namespace
}  // namespace moestro::cli
