// Weights whose codes and scales are two tensors: where the inventory finds them, and what it refuses.
#include <gtest/gtest.h>

#include <map>

#include "common/checkpoint/inventory.h"
#include "common/checkpoint/segment_plan.h"
#include "tests/common/checkpoint/checkpoint_test_util.h"

namespace moestro::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr char kExperts[] = "model.layers.1.mlp.experts.";

nlohmann::json Groups(int64_t size, const char* format = "pack-quantized", const char* type = "int") {
  return {
      {"quant_method", "compressed-tensors"},
      {"format", format},
      {"config_groups",
       {{"group_0",
         {{"targets", {"Linear"}},
          {"weights",
           {{"num_bits", 4}, {"type", type}, {"symmetric", true}, {"strategy", "group"}, {"group_size", size}}}}}}}};
}

class TwoTensorsTest : public ::testing::Test {
 protected:
  static weights::ModelSpec Spec() {
    nlohmann::json config = TinyConfig();
    config["hidden_size"] = 256;
    config["moe_intermediate_size"] = 128;
    return checkpoint::ParseModelSpec(config.dump(), "").value();
  }

  // All experts in INT4 with groups of `group`, or with 0 in MXFP4 as compressed-tensors has it.
  SafetensorsBuilder Packed(int64_t group) const {
    SafetensorsBuilder tensors = TinyTensors(spec_);
    for (const model::ModelTensor& tensor : model::CheckpointTensors(spec_)) {
      if (tensor.part == model::TensorPart::kExpert) Pack(tensors, tensor.name, tensor.rows, tensor.cols, group);
    }
    return tensors;
  }
  static void Pack(SafetensorsBuilder& tensors, const std::string& name, int64_t rows, int64_t cols, int64_t group) {
    tensors.Remove(name);
    if (group == 0) {
      tensors.Add(name + "_packed", "U8", {rows, cols / 2}).Add(name + "_scale", "U8", {rows, cols / 32});
      return;
    }
    tensors.Add(name + "_packed", "I32", {rows, cols / 8})
        .Add(name + "_scale", "BF16", {rows, cols / group})
        .Add(name + "_shape", "I64", {2});
  }
  // All experts as gpt-oss has them.
  SafetensorsBuilder Blocks() const {
    SafetensorsBuilder tensors = TinyTensors(spec_);
    for (const std::string& name : tensors.Names()) {
      if (name.starts_with(kExperts)) tensors.Remove(name);
    }
    const std::string experts = kExperts;
    tensors.Add(experts + "gate_up_proj_blocks", "U8", {8, 2 * 128, 256 / 32, 16})
        .Add(experts + "gate_up_proj_scales", "U8", {8, 2 * 128, 256 / 32})
        .Add(experts + "down_proj_blocks", "U8", {8, 256, 128 / 32, 16})
        .Add(experts + "down_proj_scales", "U8", {8, 256, 128 / 32});
    return tensors;
  }

  absl::StatusOr<std::vector<checkpoint::InventoryItem>> Check(const SafetensorsBuilder& tensors) {
    dir_.Write("config.json", nlohmann::json({{"quantization_config", quantization_}}).dump());
    dir_.Write("model.safetensors", tensors.Build());
    checkpoint_.emplace(checkpoint::Checkpoint::Open(dir_.path()).value());
    warnings_.clear();
    return checkpoint::CheckInventory(*checkpoint_, spec_, &warnings_);
  }
  void Refuse(const SafetensorsBuilder& tensors, const std::vector<std::string>& parts) {
    const absl::Status status = Check(tensors).status();
    ExpectError(status, kInvalid, {dir_.path(), "1 problem(s)"});
    ExpectError(status, kInvalid, parts);
  }
  // By the name of the tensor of the segment.
  struct Planned {
    DType dtype;
    checkpoint::TensorSource source;
    int64_t bytes;  // as published; 0 where the checkpoint has another name
  };
  std::map<std::string, Planned> PlanOf(const SafetensorsBuilder& tensors) {
    const auto items = Check(tensors);
    EXPECT_TRUE(items.ok()) << items.status();
    EXPECT_THAT(warnings_, IsEmpty());
    const auto plan = checkpoint::MakePlan(*items, spec_);
    EXPECT_TRUE(plan.ok()) << plan.status();
    std::map<std::string, Planned> planned;
    for (size_t i = 0; i < plan->tensors.size(); ++i) {
      planned[plan->tensors[i].name] = {plan->tensors[i].dtype, plan->sources[i], 0};
    }
    for (const checkpoint::InventoryItem& item : *items) {
      const auto found = planned.find(item.expected.name);
      if (found != planned.end()) found->second.bytes = item.bytes();
    }
    return planned;
  }

  TempDir dir_;
  weights::ModelSpec spec_ = Spec();
  nlohmann::json quantization_ = Groups(32);
  std::optional<checkpoint::Checkpoint> checkpoint_;
  std::vector<std::string> warnings_;
};

using Kind = checkpoint::TensorSource::Kind;

TEST_F(TwoTensorsTest, CompressedTensors) {
  const struct {
    nlohmann::json quantization;
    int64_t group;
    DType dtype;
    int64_t bytes;  // of [128, 256]
  } forms[] = {{Groups(32), 32, DType::kI4G32, 128 * 8 * 18},
               {Groups(128), 128, DType::kI4G128, 128 * 2 * 66},
               {Groups(32, "mxfp4-pack-quantized", "float"), 0, DType::kMXFP4, 128 * 8 * 17}};
  for (const auto& form : forms) {
    SCOPED_TRACE(DTypeName(form.dtype));
    quantization_ = form.quantization;
    const auto plan = PlanOf(Packed(form.group));
    const Planned& up = plan.at("model.layers.1.mlp.experts.7.up_proj.weight");
    EXPECT_EQ(up.dtype, form.dtype);
    EXPECT_EQ(up.bytes, form.bytes);
    EXPECT_EQ(up.source.kind, Kind::kTwoTensors);
    EXPECT_EQ(up.source.weight.info->name, "model.layers.1.mlp.experts.7.up_proj.weight_packed");
    EXPECT_EQ(up.source.scale->info->name, "model.layers.1.mlp.experts.7.up_proj.weight_scale");
    EXPECT_EQ(up.source.weight.offset, 0);
    EXPECT_EQ(up.source.output_step, 1);
    EXPECT_EQ(plan.at("model.layers.1.mlp.shared_experts.up_proj.weight").dtype, DType::kBF16);
  }
}

TEST_F(TwoTensorsTest, BothSizesOfGroups) {
  quantization_["config_groups"]["group_1"] = Groups(128)["config_groups"]["group_0"];
  SafetensorsBuilder tensors = Packed(32);
  Pack(tensors, "model.layers.0.mlp.gate_proj.weight", 96, 256, 128);
  const auto plan = PlanOf(tensors);
  EXPECT_EQ(plan.at("model.layers.0.mlp.gate_proj.weight").dtype, DType::kI4G128);
  EXPECT_EQ(plan.at("model.layers.1.mlp.experts.0.gate_proj.weight").dtype, DType::kI4G32);
}

// Gate and up take turns.
TEST_F(TwoTensorsTest, BlocksOfGptOss) {
  quantization_ = {{"quant_method", "mxfp4"}};
  const auto plan = PlanOf(Blocks());
  const auto part = [&](int expert, const char* matrix) {
    return plan.at(kExperts + std::to_string(expert) + "." + matrix + "_proj.weight");
  };
  for (const int expert : {0, 5}) {
    EXPECT_EQ(part(expert, "up").dtype, DType::kMXFP4);
    EXPECT_EQ(part(expert, "up").source.kind, Kind::kTwoTensors);
    EXPECT_EQ(part(expert, "up").source.weight.info->name, "model.layers.1.mlp.experts.gate_up_proj_blocks");
    EXPECT_EQ(part(expert, "up").source.weight.offset, (expert * 256 + 1) * 128);
    EXPECT_EQ(part(expert, "up").source.scale->offset, (expert * 256 + 1) * 8);
    EXPECT_EQ(part(expert, "gate").source.weight.offset, expert * 256 * 128);
    EXPECT_EQ(part(expert, "gate").source.output_step, 2);
    EXPECT_EQ(part(expert, "up").source.output_step, 2);
    EXPECT_EQ(part(expert, "down").source.weight.offset, expert * 256 * 64);
    EXPECT_EQ(part(expert, "down").source.scale->offset, expert * 256 * 4);
    EXPECT_EQ(part(expert, "down").source.output_step, 1);
  }
}

TEST_F(TwoTensorsTest, ATextModelInAWrapper) {
  SafetensorsBuilder tensors;
  for (const model::ModelTensor& tensor : model::CheckpointTensors(spec_)) {
    const std::string name = "language_model." + tensor.name;
    if (tensor.part == model::TensorPart::kExpert) {
      Pack(tensors, name, tensor.rows, tensor.cols, 32);
    } else {
      tensors.Add(name, "BF16", tensor.shape());
    }
  }
  EXPECT_EQ(PlanOf(tensors).at("model.layers.1.mlp.experts.3.down_proj.weight").source.weight.info->name,
            "language_model.model.layers.1.mlp.experts.3.down_proj.weight_packed");
}

TEST_F(TwoTensorsTest, RefusesMalformedOnes) {
  const std::string weight = std::string(kExperts) + "2.up_proj.weight";  // [128, 256]
  const auto changed = [&](const std::function<void(SafetensorsBuilder&)>& change) {
    SafetensorsBuilder tensors = Packed(32);
    change(tensors);
    return tensors;
  };
  Refuse(changed([&](auto& t) { t.Remove(weight + "_scale"); }),
         {"'" + weight + "_scale': missing, but there is '" + weight + "_packed'"});
  Refuse(changed([&](auto& t) { t.Remove(weight + "_packed").Remove(weight + "_scale").Remove(weight + "_shape"); }),
         {"'" + weight + "': missing"});
  Refuse(changed([&](auto& t) {
           t.Add(weight + "_packed", "I32", {128, 16});
         }),
         {"'" + weight + "_packed'", "shape [128, 16], expected [128, 32]"});
  Refuse(changed([&](auto& t) {
           t.Add(weight + "_packed", "I64", {128, 16});
         }),
         {"'" + weight + "_packed'", "dtype I64, expected U8 (MXFP4) or I32 (INT4)"});
  Refuse(changed([&](auto& t) {
           t.Add(weight + "_scale", "F32", {128, 8});
         }),
         {"'" + weight + "_scale'", "dtype F32, expected BF16 or F16; save the model with such scales"});
  Refuse(changed([&](auto& t) {
           t.Add(weight + "_scale", "BF16", {128, 2});
         }),
         {"'" + weight + "_scale'", "shape [128, 2], expected [128, 8]", "config.json has groups of 32"});
  Refuse(changed([&](auto& t) {
           t.Add(weight + "_zero_point", "I32", {16, 8});
         }),
         {"'" + weight + "_zero_point'", "zero points, but config.json has symmetric: true"});
  Refuse(changed([&](auto& t) { t.Add(weight + "_g_idx", "I32", {256}); }),
         {"'" + weight + "_g_idx'", "an order of columns is not supported"});
  Refuse(changed([&](auto& t) {
           t.Add(weight, "BF16", {128, 256}).Remove(weight + "_scale");
         }),
         {"'" + weight + "_packed'", "codes beside the same weight in another form"});
  Refuse(changed([&](auto& t) {
           t.Remove(weight + "_packed").Add(weight, "BF16", {128, 256});
         }),
         {"'" + weight + "_scale'", "a scale without a weight"});
  Refuse(changed([&](auto& t) {
           t.Add(weight + "_packed", "U8", {128, 128});
         }),
         {"'" + weight + "_packed'", "MXFP4 codes, but quantization_config of config.json does not name them"});
  Refuse(changed([&](auto& t) { Pack(t, "model.layers.1.mlp.gate.weight", 8, 256, 32); }),
         {"'model.layers.1.mlp.gate.weight_packed'", "must not have four bits"});
}

TEST_F(TwoTensorsTest, RefusesAContradictingConfig) {
  for (const nlohmann::json& other : {nlohmann::json(), nlohmann::json({{"quant_method", "mxfp4"}})}) {
    quantization_ = other;
    const absl::Status status = Check(Packed(32)).status();
    ExpectError(status, kInvalid,
                {"24 problem(s)", "INT4 codes, but quantization_config of config.json does not name"});
  }
  quantization_ = Groups(128);
  ExpectError(Check(Packed(32)).status(), kInvalid, {"config.json has groups of 128"});
  quantization_ = Groups(32);
  ExpectError(Check(Blocks()).status(), kInvalid,
              {"2 problem(s)", "'model.layers.1.mlp.experts.gate_up_proj_blocks'", "MXFP4 codes, but"});
}

TEST_F(TwoTensorsTest, RefusesMalformedBlocks) {
  quantization_ = {{"quant_method", "mxfp4"}};
  const std::string down = std::string(kExperts) + "down_proj";
  const auto changed = [&](const std::function<void(SafetensorsBuilder&)>& change) {
    SafetensorsBuilder tensors = Blocks();
    change(tensors);
    return tensors;
  };
  Refuse(changed([&](auto& t) { t.Remove(down + "_scales"); }), {"'" + down + "_scales': missing, but there is"});
  Refuse(changed([&](auto& t) {
           t.Add(down + "_scales", "U8", {8, 256, 8});
         }),
         {"'" + down + "_scales'", "shape [8, 256, 8], expected [8, 256, 4]"});
  Refuse(changed([&](auto& t) {
           t.Add(down + "_blocks", "U8", {8, 256, 64});
         }),
         {"'" + down + "_blocks'", "shape [8, 256, 64], expected [8, 256, 4, 16]"});
  Refuse(changed([&](auto& t) {
           t.Add(down + "_blocks", "I32", {8, 256, 4, 4});
         }),
         {"'" + down + "_blocks'", "dtype I32, expected U8"});
}

TEST_F(TwoTensorsTest, ZeroPoints) {
  const std::string up = std::string(kExperts) + "7.up_proj.weight";
  const struct {
    int64_t group;  // 0: a row
    const char* scales;
    bool zeros;
    DType dtype;
  } forms[] = {{32, "BF16", true, DType::kI4Z32},   {32, "F16", false, DType::kI4Z32},
               {128, "BF16", true, DType::kI4Z128}, {128, "F16", true, DType::kI4Z128},
               {64, "BF16", false, DType::kI4Z32},  {0, "F16", true, DType::kI4Z128}};
  for (const auto& form : forms) {
    SCOPED_TRACE(::testing::Message() << form.group << form.scales << form.zeros);
    quantization_ = Groups(form.group);
    nlohmann::json& weights = quantization_["config_groups"]["group_0"]["weights"];
    weights["symmetric"] = !form.zeros;
    if (form.group == 0) weights["strategy"] = "channel", weights["group_size"] = nullptr;
    SafetensorsBuilder tensors = TinyTensors(spec_);
    const int64_t groups = form.group == 0 ? 1 : 256 / form.group;
    tensors.Remove(up).Add(up + "_packed", "I32", {128, 32}).Add(up + "_scale", form.scales, {128, groups});
    if (form.zeros) tensors.Add(up + "_zero_point", "I32", {16, groups});
    const Planned planned = PlanOf(tensors).at(up);
    EXPECT_EQ(planned.dtype, form.dtype);
    EXPECT_EQ(planned.bytes, 128 * (128 + 2 * groups) + (form.zeros ? 64 * groups : 0));
    EXPECT_EQ(planned.source.kind, Kind::kInt4);
    EXPECT_EQ(planned.source.int4->group, form.group == 0 ? 256 : form.group);
    EXPECT_EQ(planned.source.int4->zeros.has_value(), form.zeros);
  }
  quantization_["config_groups"]["group_0"]["weights"] = {
      {"num_bits", 4}, {"type", "int"}, {"symmetric", false}, {"strategy", "group"}, {"group_size", 32}};
  SafetensorsBuilder tensors = TinyTensors(spec_);
  tensors.Remove(up).Add(up + "_packed", "I32", {128, 32}).Add(up + "_scale", "F16", {128, 8});
  Refuse(tensors, {"'" + up + "_zero_point': missing, but config.json has symmetric: false"});
  tensors.Add(up + "_zero_point", "I32", {128, 1});
  Refuse(tensors, {"'" + up + "_zero_point'", "shape [128, 1], expected [16, 8]"});
  tensors.Add(up + "_zero_point", "I8", {16, 8});
  Refuse(tensors,
         {"'" + up + "_zero_point'", "zero points in I8 are not supported; save the model with a compressed-tensors"});
}

// Blocks cannot be transposed.
TEST_F(TwoTensorsTest, KeysAndValuesOfALatentBecomeF16) {
  const std::string name = "model.layers.0.self_attn.kv_b_proj.weight";  // [256, 64]
  SafetensorsBuilder tensors = TinyTensors(spec_);
  Pack(tensors, name, 256, 64, 32);
  const auto plan = PlanOf(tensors);
  const Planned& values = plan.at(name);
  const Planned& keys = plan.at("model.layers.0.self_attn.kv_b_proj.key_transposed");
  EXPECT_EQ(values.dtype, DType::kF16);
  EXPECT_EQ(values.source.kind, Kind::kRounded);
  EXPECT_EQ(keys.dtype, DType::kF16);
  EXPECT_EQ(keys.source.kind, Kind::kTransposeKeys);
  for (const Planned& planned : {values, keys}) {
    ASSERT_TRUE(planned.source.int4.has_value());
    EXPECT_EQ(planned.source.int4->dtype, DType::kI4Z32);
    EXPECT_EQ(planned.source.int4->rows, 256);
    EXPECT_EQ(planned.source.int4->cols, 64);
  }
  quantization_ = Groups(32, "mxfp4-pack-quantized", "float");
  tensors = TinyTensors(spec_);
  Pack(tensors, name, 256, 64, 0);
  Refuse(tensors, {"'" + name + "_packed'", "must not have four bits"});
}

class ByInputTest : public TwoTensorsTest {
 protected:
  // One expert's [128, 256] in groups of 64.
  SafetensorsBuilder Tensors(const char* method) {
    quantization_ = {{"quant_method", method}, {"bits", 4}, {"group_size", 64}};
    SafetensorsBuilder tensors = TinyTensors(spec_);
    tensors.Remove(base_ + "weight").Add(base_ + "scales", "F16", {4, 128}).Add(base_ + "qzeros", "I32", {4, 16});
    if (std::string_view(method) == "awq") return tensors.Add(base_ + "qweight", "I32", {256, 16});
    return tensors.Add(base_ + "qweight", "I32", {32, 128}).Add(base_ + "g_idx", "I32", {256});
  }
  SafetensorsBuilder Changed(const char* method, const std::function<void(SafetensorsBuilder&)>& change) {
    SafetensorsBuilder tensors = Tensors(method);
    change(tensors);
    return tensors;
  }
  const std::string base_ = std::string(kExperts) + "2.up_proj.";
};

TEST_F(ByInputTest, AwqAndGptq) {
  for (const char* const method : {"awq", "gptq"}) {
    SCOPED_TRACE(method);
    const bool awq = std::string_view(method) == "awq";
    const Planned up = PlanOf(Tensors(method)).at(base_ + "weight");
    EXPECT_EQ(up.dtype, DType::kI4Z32);
    EXPECT_EQ(up.bytes, 128 * 128 + 128 * 4 * 2 + 16 * 4 * 4);
    EXPECT_EQ(up.source.kind, Kind::kInt4ByInput);
    EXPECT_EQ(up.source.weight.info->name, base_ + "qweight");
    EXPECT_EQ(up.source.scale->info->name, base_ + "scales");
    EXPECT_EQ(up.source.int4->zeros->info->name, base_ + "qzeros");
    EXPECT_EQ(up.source.int4->group, 64);
    EXPECT_EQ(up.source.int4->by_input, awq ? checkpoint::ByInput::kAwq : checkpoint::ByInput::kGptq);
    EXPECT_EQ(up.source.int4->group_of_input.has_value(), !awq);
    EXPECT_THAT(PlanOf(Changed(method,
                               [&](auto& t) {
                                 t.Add(base_ + "scales", "BF16", {4, 128});
                               }))
                    .at(base_ + "weight")
                    .dtype,
                DType::kI4Z32);
  }
  EXPECT_EQ(PlanOf(Changed("gptq", [&](auto& t) { t.Remove(base_ + "g_idx"); })).at(base_ + "weight").dtype,
            DType::kI4Z32);
}

TEST_F(ByInputTest, RefusesMalformedOnes) {
  for (const char* const method : {"awq", "gptq"}) {
    SCOPED_TRACE(method);
    Refuse(Changed(method, [&](auto& t) { t.Remove(base_ + "qzeros"); }),
           {"'" + base_ + "qzeros': missing: each group needs a zero point"});
    Refuse(Changed(method, [&](auto& t) { t.Remove(base_ + "scales"); }),
           {"'" + base_ + "scales': missing, but there is '" + base_ + "qweight'"});
    Refuse(Changed(method,
                   [&](auto& t) {
                     t.Add(base_ + "qzeros", "I32", {4, 128});
                   }),
           {"'" + base_ + "qzeros'", "shape [4, 128], expected [4, 16]"});
    Refuse(Changed(method,
                   [&](auto& t) {
                     t.Add(base_ + "qzeros", "F16", {4, 16});
                   }),
           {"'" + base_ + "qzeros'", "dtype F16, expected I32"});
    Refuse(Changed(method,
                   [&](auto& t) {
                     t.Add(base_ + "scales", "F32", {4, 128});
                   }),
           {"'" + base_ + "scales'", "dtype F32, expected BF16 or F16"});
    Refuse(Changed(method,
                   [&](auto& t) {
                     t.Add(base_ + "scales", "F16", {2, 128});
                   }),
           {"'" + base_ + "scales'", "shape [2, 128], expected [4, 128]: config.json has groups of 64"});
    Refuse(Changed(method,
                   [&](auto& t) {
                     t.Add(base_ + "qweight", "I32", {128, 32});
                   }),
           {"'" + base_ + "qweight'", "shape [128, 32], expected ["});
    Refuse(Changed(method,
                   [&](auto& t) {
                     t.Add(base_ + "qweight", "U8", {32, 128});
                   }),
           {"'" + base_ + "qweight'", "dtype U8, expected I32"});
    Refuse(Changed(method,
                   [&](auto& t) {
                     t.Add(base_ + "weight", "BF16", {128, 256})
                         .Remove(base_ + "scales")
                         .Remove(base_ + "qzeros")
                         .Remove(base_ + "g_idx");
                   }),
           {"'" + base_ + "qweight'", "codes beside the same weight in another form"});
    Refuse(Changed(method,
                   [&](auto& t) {
                     t.Add("model.layers.1.mlp.gate.qweight", "I32", {256, 1})
                         .Remove("model.layers.1.mlp.gate.weight")
                         .Add("model.layers.1.mlp.gate.scales", "F16", {4, 8});
                   }),
           {"'model.layers.1.mlp.gate.qweight'", "must not have four bits"});
  }
  Refuse(Changed("gptq", [&](auto& t) { t.Add(base_ + "g_idx", "I32", {32}); }),
         {"'" + base_ + "g_idx'", "shape [32], expected [256]"});
  SafetensorsBuilder tensors = Changed("gptq", [&](auto& t) { t.Remove(base_ + "g_idx"); });
  quantization_["desc_act"] = true;
  Refuse(tensors, {"'" + base_ + "g_idx': missing, but config.json has desc_act: true"});
  quantization_ = nullptr;
  Refuse(tensors, {"'" + base_ + "qweight'", "INT4 codes, but quantization_config of config.json does not name them"});
}

class Int8Test : public TwoTensorsTest {
 protected:
  void SetUp() override { quantization_ = {{"quant_method", "w8a8_int8"}}; }

  static void Round(SafetensorsBuilder& tensors, const std::string& name, std::vector<int64_t> shape,
                    const char* scale_dtype = "F32") {
    tensors.Remove(name).Add(name, "I8", shape);
    shape.back() = 1;
    tensors.Add(name + "_scale", scale_dtype, shape);
  }
  SafetensorsBuilder Rounded(const char* scale_dtype = "F32") const {
    SafetensorsBuilder tensors = TinyTensors(spec_);
    for (const model::ModelTensor& tensor : model::CheckpointTensors(spec_)) {
      if (model::IsLinear(tensor.role)) Round(tensors, tensor.name, tensor.shape(), scale_dtype);
    }
    return tensors;
  }
  SafetensorsBuilder Changed(const std::function<void(SafetensorsBuilder&)>& change) const {
    SafetensorsBuilder tensors = Rounded();
    change(tensors);
    return tensors;
  }

  const std::string weight_ = std::string(kExperts) + "2.up_proj.weight";  // [128, 256]
};

TEST_F(Int8Test, ScalesByRow) {
  for (const auto& [dtype, bytes] : {std::pair("F32", 4), std::pair("BF16", 2), std::pair("F16", 2)}) {
    const auto plan = PlanOf(Rounded(dtype));
    const Planned& up = plan.at(weight_);
    EXPECT_EQ(up.dtype, DType::kI8);
    EXPECT_EQ(up.bytes, 128 * 256 + 128 * bytes);
    EXPECT_EQ(up.source.kind, Kind::kRows);
    EXPECT_EQ(up.source.weight.info->name, weight_);
    EXPECT_EQ(up.source.scale->info->name, weight_ + "_scale");
    const Planned& latent = plan.at("model.layers.0.self_attn.kv_b_proj.weight");
    EXPECT_EQ(latent.dtype, DType::kF16);
    EXPECT_EQ(latent.source.kind, Kind::kRounded);
    EXPECT_EQ(latent.bytes, 256 * 64 + 256 * bytes);
    const Planned& keys = plan.at("model.layers.0.self_attn.kv_b_proj.key_transposed");
    EXPECT_EQ(keys.dtype, DType::kF16);
    EXPECT_EQ(keys.source.kind, Kind::kTransposeKeys);
    EXPECT_EQ(keys.source.scale->info->name, "model.layers.0.self_attn.kv_b_proj.weight_scale");
  }
  const std::string latent = "model.layers.0.self_attn.kv_b_proj.weight";
  const auto published = Changed([&](auto& t) {
    t.Remove(latent + "_scale").Remove(latent).Add(latent, "BF16", {256, 64});
  });
  EXPECT_EQ(PlanOf(published).at(latent).dtype, DType::kBF16);
  const auto without_columns =
      Changed([&](auto& t) { t.Remove(weight_ + "_scale").Add(weight_ + "_scale", "F32", {128}); });
  EXPECT_EQ(PlanOf(without_columns).at(weight_).dtype, DType::kI8);
}

TEST_F(Int8Test, ExpertsInOneTensor) {
  SafetensorsBuilder tensors = Rounded();
  for (const std::string& name : tensors.Names()) {
    if (name.starts_with(kExperts)) tensors.Remove(name);
  }
  Round(tensors, std::string(kExperts) + "gate_up_proj", {8, 2 * 128, 256}, "BF16");
  Round(tensors, std::string(kExperts) + "down_proj", {8, 256, 128}, "BF16");
  const auto plan = PlanOf(tensors);
  const Planned& up = plan.at(std::string(kExperts) + "5.up_proj.weight");
  EXPECT_EQ(up.dtype, DType::kI8);
  EXPECT_EQ(up.source.weight.offset, (5 * 256 + 128) * 256);
  EXPECT_EQ(up.source.scale->offset, (5 * 256 + 128) * 2);
}

TEST_F(Int8Test, RefusesMalformedOnes) {
  const std::string scale = weight_ + "_scale";
  Refuse(Changed([&](auto& t) { t.Remove(scale); }), {"'" + scale + "': missing, but there is '" + weight_ + "'"});
  Refuse(Changed([&](auto& t) { t.Remove(weight_); }), {"'" + weight_ + "': missing"});
  Refuse(Changed([&](auto& t) { t.Remove(scale).Add(scale, "F32", {1}); }),
         {"'" + scale + "'", "shape [1], expected [128, 1]: a scale for each row"});
  Refuse(Changed([&](auto& t) {
           t.Remove(scale).Add(scale, "F64", {128, 1});
         }),
         {"'" + scale + "'", "dtype F64, expected F32 or BF16 or F16"});
  Refuse(Changed([&](auto& t) {
           t.Remove(weight_).Add(weight_, "I8", {256, 128});
         }),
         {"'" + weight_ + "'", "shape [256, 128], expected [128, 256]"});
  Refuse(Changed([&](auto& t) {
           t.Remove(weight_).Add(weight_, "BF16", {128, 256});
         }),
         {"'" + scale + "'", "a scale without a weight"});
  Refuse(Changed([&](auto& t) { t.Add(std::string(kExperts) + "2.up_proj.input_scale", "F32", {1}); }),
         {"'" + std::string(kExperts) + "2.up_proj.input_scale'", "static scales of inputs are not supported"});
  Refuse(Changed([&](auto& t) {
           t.Add(weight_ + "_zero_point", "I8", {128, 1});
         }),
         {"zero points are supported beside codes of four bits only"});
  Refuse(Changed([&](auto& t) {
           t.Remove("lm_head.weight").Add("lm_head.weight", "I8", {40, 256});
         }),
         {"'lm_head.weight'", "dtype I8, expected BF16"});
}

TEST_F(Int8Test, RefusesAContradictingConfig) {
  quantization_ = Groups(32);
  ExpectError(Check(Rounded()).status(), kInvalid,
              {"I8 codes, but quantization_config of config.json does not name them; get the config.json of this"});
}

// Sums of products stay below 2^31.
TEST_F(Int8Test, RefusesTooManyColumns) {
  nlohmann::json config = TinyConfig();
  config["intermediate_size"] = 65537;
  spec_ = checkpoint::ParseModelSpec(config.dump(), "").value();
  Refuse(Rounded(), {"'model.layers.0.mlp.down_proj.weight'", "65537 columns of I8, at most 65536 are supported"});
}

// Columns that no whole groups make.
TEST_F(TwoTensorsTest, RefusesPartsOfGroups) {
  nlohmann::json config = TinyConfig();
  config["moe_intermediate_size"] = 80;
  spec_ = checkpoint::ParseModelSpec(config.dump(), "").value();
  SafetensorsBuilder tensors = TinyTensors(spec_);
  Pack(tensors, std::string(kExperts) + "0.down_proj.weight", 64, 80, 32);
  Refuse(tensors, {"'model.layers.1.mlp.experts.0.down_proj.weight_packed'",
                   "80 columns are no multiple of a group of 32", "get the model with this weight in BF16"});
}

}  // namespace
}  // namespace moestro::testing
