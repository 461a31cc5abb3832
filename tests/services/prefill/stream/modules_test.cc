#include "services/prefill/stream/modules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "tests/support/aligned_memory.h"
#include "tests/support/synthetic_segment.h"

namespace moestro {
namespace {

class ModulesTest : public testing::Test {
 protected:
  const SyntheticSegment model_ = MakeSyntheticSegment({.spec = SmallSpec()});
  const ModelSpec& spec_ = model_.segment->spec();
  const ModelWeights weights_ = BindWeights(*model_.segment).value();

  static AlignedMemory Stage(const Module& module) {
    AlignedMemory memory(module.image.bytes);
    for (const StagedRange& range : module.image.ranges) {
      std::memcpy(memory.data() + range.offset, range.source, range.bytes);
    }
    return memory;
  }
  static void ExpectSame(const PackedMatrix& staged, const PackedMatrix& original) {
    EXPECT_NE(staged.data, original.data);
    EXPECT_EQ(std::memcmp(staged.data, original.data, PackedBytes(original.dtype, original.rows, original.cols)), 0);
    EXPECT_EQ(std::memcmp(staged.scales, original.scales, sizeof(float)), 0);
  }
};

TEST_F(ModulesTest, OrderOfUse) {
  const std::vector<Module> modules = ListModules(spec_, weights_, MlaForm::kAbsorbed, 1);
  std::string order;
  for (const Module& module : modules) order += ModuleName(module.kind)[0];
  EXPECT_EQ(order,
            "ad"
            "areeeeeeee"
            "areeeeeeee"
            "hh");
  EXPECT_EQ(modules.back().first, 128);
  EXPECT_EQ(modules.back().rows, spec_.vocab_size - 128);
}

TEST_F(ModulesTest, AnExpertIsOneCopy) {
  for (const Module& module : ListModules(spec_, weights_, MlaForm::kAbsorbed, 1)) {
    if (module.kind == ModuleKind::kExpert) {
      EXPECT_EQ(module.image.ranges.size(), 1u);
    }
  }
}

TEST_F(ModulesTest, ImagesHoldTheSameNumbers) {
  for (const Module& module : ListModules(spec_, weights_, MlaForm::kUnabsorbed, 1 << 20)) {
    const AlignedMemory memory = Stage(module);
    const uint8_t* base = memory.data();
    if (module.kind == ModuleKind::kAttention) {
      const AttentionWeights& original = weights_.layers[module.layer].attention;
      const AttentionWeights staged = Staged(spec_, MlaForm::kUnabsorbed, original, module.image, base);
      EXPECT_EQ(staged.input_norm[spec_.hidden_size - 1], original.input_norm[spec_.hidden_size - 1]);
      EXPECT_EQ(staged.key_transposed.data, nullptr);
      ExpectSame(staged.kv_b, original.kv_b);
      ExpectSame(staged.o, original.o);
    } else if (module.kind == ModuleKind::kExpert) {
      const MlpWeights& original = weights_.layers[module.layer].feed_forward.experts[module.index];
      const MlpWeights staged = Staged(original, module.image, base);
      ExpectSame(staged.gate, original.gate);
      ExpectSame(staged.up, original.up);
      ExpectSame(staged.down, original.down);
    }
  }
}

TEST_F(ModulesTest, UnabsorbedAttentionLeavesTheTransposedKeysOut) {
  const auto bytes = [&](MlaForm form) { return ListModules(spec_, weights_, form, 1).front().image.bytes; };
  const PackedMatrix& keys = weights_.layers[0].attention.key_transposed;
  EXPECT_GE(bytes(MlaForm::kAbsorbed) - bytes(MlaForm::kUnabsorbed), PackedBytes(keys.dtype, keys.rows, keys.cols));
}

}  // namespace
}  // namespace moestro
