// One model saved in several forms gives one segment, byte for byte.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "common/tensor/dtype.h"
#include "tests/services/weight_store/pack/pack_in_memory.h"
#include "tests/support/random_checkpoint.h"

namespace moestro::store {
namespace {

using Tensors = std::map<std::string, RandomCheckpoint::Tensor>;

// Packs the checkpoint as it is, and as `resave` leaves it, and compares the segments.
void ExpectSameSegment(RandomCheckpoint& random, const std::function<void(Tensors&)>& resave) {
  random.Write();
  const checkpoint::Checkpoint plain = random.Open();
  const Packed expected = PackInMemory(plain, random.spec());
  ASSERT_TRUE(expected.status.ok()) << expected.status;
  resave(random.tensors());
  random.Write();
  const checkpoint::Checkpoint resaved = random.Open();
  const Packed packed = PackInMemory(resaved, random.spec(), {.threads = 2});
  ASSERT_TRUE(packed.status.ok()) << packed.status;
  ASSERT_EQ(packed.memory.size(), expected.memory.size());
  EXPECT_EQ(std::memcmp(packed.memory.data(), expected.memory.data(), static_cast<size_t>(packed.memory.size())), 0);
}

// Moves `parts` ("gate_proj.weight", …) of each expert, in this order, into one tensor.
void Fuse(Tensors& tensors, const std::string& experts, int64_t count, const std::vector<std::string>& parts,
          const std::string& name, const std::string& new_experts) {
  RandomCheckpoint::Tensor fused;
  for (int64_t e = 0; e < count; ++e) {
    int64_t rows = 0;
    for (const std::string& part : parts) {
      const auto tensor = tensors.extract(experts + std::to_string(e) + "." + part);
      ASSERT_FALSE(tensor.empty()) << experts << e << "." << part;
      rows += tensor.mapped().shape[0];
      fused.dtype = tensor.mapped().dtype;
      fused.shape = {count, rows, tensor.mapped().shape[1]};
      fused.data += tensor.mapped().data;
    }
  }
  tensors[new_experts + name] = fused;
}

void FuseExperts(Tensors& tensors, const weights::ModelSpec& spec, bool fp8) {
  const std::string experts = "model.layers.1.mlp.experts.";
  for (const std::string suffix : {"", "_scale_inv"}) {
    if (!fp8 && !suffix.empty()) return;
    Fuse(tensors, experts, spec.num_experts, {"gate_proj.weight" + suffix, "up_proj.weight" + suffix},
         "gate_up_proj" + suffix, experts);
    Fuse(tensors, experts, spec.num_experts, {"down_proj.weight" + suffix}, "down_proj" + suffix, experts);
  }
}

void Rename(Tensors& tensors, const std::string& from, const std::string& to) {
  Tensors renamed;
  for (auto& [name, tensor] : tensors) {
    renamed[name.starts_with(from) ? to + name.substr(from.size()) : name] = std::move(tensor);
  }
  tensors = std::move(renamed);
}

// As the reference library saves them with save_original_format=False.
TEST(ResavedCheckpoint, ExpertsInOneTensor) {
  RandomCheckpoint random(OddSpec(), false);
  ExpectSameSegment(random, [&](Tensors& tensors) { FuseExperts(tensors, random.spec(), false); });
}

TEST(ResavedCheckpoint, ExpertsInOneFp8Tensor) {
  weights::ModelSpec spec = BlockSpec();
  spec.moe_intermediate_size = 256;
  RandomCheckpoint random(spec, true);
  ExpectSameSegment(random, [&](Tensors& tensors) { FuseExperts(tensors, spec, true); });
}

// The second expert's scales would begin within a block of the first.
TEST(ResavedCheckpoint, Fp8PartsMustBeWholeBlocks) {
  RandomCheckpoint random(BlockSpec(), true);
  FuseExperts(random.tensors(), random.spec(), true);
  for (const char* name : {"gate_up_proj", "down_proj"}) {
    auto& scale = random.tensors().at(std::string("model.layers.1.mlp.experts.") + name + "_scale_inv");
    const auto& shape = random.tensors().at(std::string("model.layers.1.mlp.experts.") + name).shape;
    scale.shape = {shape[0], (shape[1] + 127) / 128, (shape[2] + 127) / 128};
    scale.data.assign(static_cast<size_t>(scale.shape[0] * scale.shape[1] * scale.shape[2] * 4), '\0');
  }
  random.Write();
  const checkpoint::Checkpoint checkpoint = random.Open();
  testing::ExpectError(
      checkpoint::CheckInventory(checkpoint, random.spec()).status(), absl::StatusCode::kInvalidArgument,
      {"'model.layers.1.mlp.experts.gate_up_proj'", "needs parts of a multiple of 128 rows, not 35; use BF16"});
}

TEST(ResavedCheckpoint, FusedTensorOfAnotherShapeIsOneProblem) {
  RandomCheckpoint random(OddSpec(), false);
  FuseExperts(random.tensors(), random.spec(), false);
  auto& fused = random.tensors().at("model.layers.1.mlp.experts.gate_up_proj");
  fused.shape = {5, 35, 140};
  random.Write();
  const checkpoint::Checkpoint checkpoint = random.Open();
  testing::ExpectError(
      checkpoint::CheckInventory(checkpoint, random.spec()).status(), absl::StatusCode::kInvalidArgument,
      {"1 problem(s)", "'model.layers.1.mlp.experts.gate_up_proj'", "shape [5, 35, 140], expected [5, 70, 70]"});
}

// Mixtral's own names become those of the other families. MiniMax-M2's router has its bias beside it.
TEST(ResavedCheckpoint, ExpertsInOneTensorUnderTheSegmentsNames) {
  for (const char* family : {"mixtral", "minimax_m2"}) {
    SCOPED_TRACE(family);
    weights::ModelSpec spec = OddSpec();
    std::strcpy(spec.family, family);
    spec.num_kv_heads = 1;
    spec.q_lora_rank = spec.kv_lora_rank = spec.qk_nope_head_dim = spec.num_shared_experts = 0;
    spec.first_dense_layers = 0;
    spec.v_head_dim = spec.qk_rope_head_dim = 64;
    spec.heads_without_norms = 1;
    spec.softmax_router = std::string_view(family) == "mixtral" ? 1 : 0;
    RandomCheckpoint random(spec, false);
    ExpectSameSegment(random, [&](Tensors& tensors) {
      for (const std::string layer : {"model.layers.0.", "model.layers.1."}) {
        const std::string own = layer + "block_sparse_moe.experts.", ours = layer + "mlp.experts.";
        Fuse(tensors, own, spec.num_experts, {"w1.weight", "w3.weight"}, "gate_up_proj", ours);
        Fuse(tensors, own, spec.num_experts, {"w2.weight"}, "down_proj", ours);
        Rename(tensors, layer + "block_sparse_moe.", layer + "mlp.");
      }
    });
  }
}

TEST(ResavedCheckpoint, TextModelInAWrapper) {
  for (const auto& [plain, wrapper] :
       {std::pair("", "language_model."), std::pair("model.", "model.language_model.")}) {
    SCOPED_TRACE(wrapper);
    RandomCheckpoint random(OddSpec(), false);
    ExpectSameSegment(random, [&, from = plain, to = wrapper](Tensors& tensors) {
      Rename(tensors, from, to);
      tensors["vision_tower.blocks.0.norm.weight"] = {"F16", {4}, std::string(8, 'x')};
      tensors[std::string(to) + (*from == '\0' ? "model." : "") + "layers.2.eh_proj.weight"] = {"F32", {1}, "abcd"};
    });
  }
}

// To F32, every narrower type converts exactly.
TEST(ResavedCheckpoint, WidenedTensorsOfOtherTypes) {
  const auto convert = [](RandomCheckpoint::Tensor& tensor, bool half) {
    // Values that both types hold: small multiples of 2^-6.
    std::string wide, narrow;
    const int64_t count = static_cast<int64_t>(tensor.data.size()) / (tensor.dtype == "F32" ? 4 : 2);
    for (int64_t i = 0; i < count; ++i) {
      const float value = static_cast<float>(i % 129 - 64) / 64;
      wide.append(reinterpret_cast<const char*>(&value), 4);
      uint16_t bits = half ? 0 : ToBf16(value);
      while (half && FromF16(bits) != value) ++bits;
      narrow.append(reinterpret_cast<const char*>(&bits), 2);
    }
    return std::pair(wide, narrow);
  };
  for (const bool half : {false, true}) {
    RandomCheckpoint random(OddSpec(), false);
    std::map<std::string, std::string> narrowed;
    for (const std::string name :
         {"model.norm.weight", "model.layers.1.mlp.gate.e_score_correction_bias", "model.layers.1.mlp.gate.weight"}) {
      RandomCheckpoint::Tensor& tensor = random.tensors().at(name);
      auto [wide, narrow] = convert(tensor, half);
      tensor.dtype = "F32";
      tensor.data = wide;
      narrowed[name] = narrow;
    }
    ExpectSameSegment(random, [&](Tensors& tensors) {
      for (const auto& [name, data] : narrowed) {
        tensors.at(name).dtype = half ? "F16" : "BF16";
        tensors.at(name).data = data;
      }
    });
  }
}

TEST(ResavedCheckpoint, ScalesInBf16) {
  RandomCheckpoint random(BlockSpec(), true);
  std::map<std::string, std::string> narrowed;
  for (auto& [name, tensor] : random.tensors()) {
    if (!name.ends_with("_scale_inv")) continue;
    for (size_t i = 0; i < tensor.data.size(); i += 4) {
      float value;
      std::memcpy(&value, tensor.data.data() + i, 4);
      const uint16_t bits = ToBf16(value);
      value = FromBf16(bits);
      std::memcpy(tensor.data.data() + i, &value, 4);
      narrowed[name].append(reinterpret_cast<const char*>(&bits), 2);
    }
  }
  ExpectSameSegment(random, [&](Tensors& tensors) {
    for (const auto& [name, data] : narrowed) {
      tensors.at(name).dtype = "BF16";
      tensors.at(name).data = data;
    }
  });
}

}  // namespace
}  // namespace moestro::store
