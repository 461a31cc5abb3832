#include "common/engine/weight_image.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "common/model/moe/moe_tasks.h"
#include "tests/support/aligned_memory.h"
#include "tests/support/synthetic_segment.h"

namespace moestro::engine {
namespace {

class ModulesTest : public testing::Test {
 protected:
  const SyntheticSegment model_ = MakeSyntheticSegment({.spec = SmallSpec()});
  const weights::ModelSpec& spec_ = model_.segment->spec();
  const model::ModelWeights weights_ = model::BindWeights(*model_.segment).value();

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
    ASSERT_EQ(staged.scales == nullptr, original.scales == nullptr);
    if (original.scales == nullptr) return;
    EXPECT_EQ(std::memcmp(staged.scales, original.scales, sizeof(float)), 0);
  }
};

TEST_F(ModulesTest, OrderOfUse) {
  const std::vector<Module> modules = ListModules(spec_, weights_, model::MlaForm::kAbsorbed, 1);
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
  for (const Module& module : ListModules(spec_, weights_, model::MlaForm::kAbsorbed, 1)) {
    if (module.kind == ModuleKind::kExpert) {
      EXPECT_EQ(module.image.ranges.size(), 1u);
    }
  }
}

TEST_F(ModulesTest, ImagesHoldTheSameNumbers) {
  for (const Module& module : ListModules(spec_, weights_, model::MlaForm::kUnabsorbed, 1 << 20)) {
    const AlignedMemory memory = Stage(module);
    const StagedModule on_device{&module, memory.data()};
    if (module.kind == ModuleKind::kAttention) {
      const model::AttentionWeights& original = weights_.layers[module.layer].attention;
      const model::AttentionWeights staged = on_device.Attention(spec_, model::MlaForm::kUnabsorbed, weights_);
      EXPECT_EQ(staged.input_norm[spec_.hidden_size - 1], original.input_norm[spec_.hidden_size - 1]);
      EXPECT_EQ(staged.key_transposed.data, nullptr);
      ExpectSame(staged.kv_b, original.kv_b);
      ExpectSame(staged.o, original.o);
    } else if (module.kind == ModuleKind::kExpert) {
      const model::MlpWeights& original = weights_.layers[module.layer].feed_forward.experts[module.index];
      const model::MlpWeights staged = on_device.Expert(weights_);
      ExpectSame(staged.gate, original.gate);
      ExpectSame(staged.up, original.up);
      ExpectSame(staged.down, original.down);
    }
  }
}

TEST_F(ModulesTest, UnabsorbedAttentionLeavesTheTransposedKeysOut) {
  const auto bytes = [&](model::MlaForm form) { return ListModules(spec_, weights_, form, 1).front().image.bytes; };
  const PackedMatrix& keys = weights_.layers[0].attention.key_transposed;
  EXPECT_GE(bytes(model::MlaForm::kAbsorbed) - bytes(model::MlaForm::kUnabsorbed),
            PackedBytes(keys.dtype, keys.rows, keys.cols));
}

// Codes, scales and compensation of every type: each array is in the image, and holds the same numbers.
class TypedModulesTest : public ::testing::TestWithParam<TypedModel> {};

TEST_P(TypedModulesTest, ImagesHoldAllArrays) {
  const SyntheticSegment model = MakeSyntheticSegment(GetParam().options);
  const weights::ModelSpec& spec = model.segment->spec();
  const model::ModelWeights weights = model::BindWeights(*model.segment).value();
  struct Array {
    const void* data;
    int64_t bytes;
  };
  const auto list = [&](std::vector<Array>& arrays) {
    return [&arrays](const auto*& data, int64_t bytes) { arrays.push_back({data, bytes}); };
  };
  for (const Module& module : ListModules(spec, weights, model::MlaForm::kAbsorbed, 1)) {
    SCOPED_TRACE(testing::Message() << ModuleName(module.kind) << " of layer " << module.layer);
    AlignedMemory memory(module.image.bytes);
    for (const StagedRange& range : module.image.ranges) {
      std::memcpy(memory.data() + range.offset, range.source, range.bytes);
    }
    const StagedModule on_device{&module, memory.data()};
    std::vector<Array> staged, original;
    if (module.kind == ModuleKind::kAttention) {
      model::AttentionWeights before = weights.layers[module.layer].attention;
      model::AttentionWeights after = on_device.Attention(spec, model::MlaForm::kAbsorbed, weights);
      model::VisitArrays(spec, before, list(original));
      model::VisitArrays(spec, after, list(staged));
    } else if (module.kind == ModuleKind::kExpert) {
      model::MlpWeights before = weights.layers[module.layer].feed_forward.experts[module.index];
      model::MlpWeights after = on_device.Expert(weights);
      model::VisitArrays(before, list(original));
      model::VisitArrays(after, list(staged));
    } else if (module.kind == ModuleKind::kHead) {
      PackedMatrix before = SliceRows(weights.head, module.first, module.rows);
      PackedMatrix after = on_device.Head(weights).weights;
      model::VisitArrays(before, list(original));
      model::VisitArrays(after, list(staged));
    } else {
      model::FeedForwardWeights before = weights.layers[module.layer].feed_forward;
      before.experts.clear();
      model::FeedForwardWeights after = on_device.FeedForward(spec, weights);
      model::VisitArrays(spec, before, list(original));
      model::VisitArrays(spec, after, list(staged));
    }
    ASSERT_EQ(staged.size(), original.size());
    ASSERT_FALSE(original.empty());
    for (size_t i = 0; i < original.size(); ++i) {
      const auto* const begin = static_cast<const uint8_t*>(staged[i].data);
      EXPECT_GE(begin, memory.data());
      EXPECT_LE(begin + staged[i].bytes, memory.data() + memory.size());
      EXPECT_EQ(std::memcmp(begin, original[i].data, static_cast<size_t>(original[i].bytes)), 0);
    }
  }
}

// Every byte of a device's rows is where kernels look for it, in an image that has few others.
TEST_P(TypedModulesTest, SharesOfAnExpertHaveItsRows) {
  const SyntheticSegment model = MakeSyntheticSegment(GetParam().options);
  const weights::ModelSpec& spec = model.segment->spec();
  const model::ModelWeights weights = model::BindWeights(*model.segment).value();
  const model::MlpWeights& expert = weights.layers[spec.MoeLayer(0)].feed_forward.experts[1];
  for (const int devices : {1, 2, 3}) {
    std::vector<int> found(static_cast<size_t>(expert.down.rows), 0);
    int64_t bytes = 0;
    for (int device = 0; device < devices; ++device) {
      const ModuleImage image = ShareImage(expert, device, devices);
      bytes += image.bytes;
      AlignedMemory memory(std::max<int64_t>(1, image.bytes));
      for (const StagedRange& range : image.ranges) {
        std::memcpy(memory.data() + range.offset, range.source, range.bytes);
      }
      const model::MlpWeights staged = StagedShare(expert, image, memory.data(), device, devices);
      const auto expect_rows = [&](const PackedMatrix& before, const PackedMatrix& after) {
        const IndexRange rows = model::DomainRows(before.rows, device, devices);
        const int64_t group = PackedGroupBytes(before.dtype, before.cols);
        const int64_t from = rows.begin / kRowGroup * group, to = CeilDiv(rows.end, kRowGroup) * group;
        EXPECT_EQ(std::memcmp(after.data + from, before.data + from, static_cast<size_t>(to - from)), 0);
        for (int64_t row = rows.begin; row < rows.end; ++row) {
          if (before.scales == nullptr) break;
          const int64_t blocks = before.dtype == DType::kI8 ? 1 : CeilDiv(before.cols, kScaleBlock);
          const int64_t at = before.dtype == DType::kI8 ? row : row / kScaleBlock * blocks;
          EXPECT_EQ(std::memcmp(after.scales + at, before.scales + at, static_cast<size_t>(blocks) * 4), 0) << row;
          if (before.compensation == nullptr) continue;
          EXPECT_EQ(after.compensation[row], before.compensation[row]);
        }
        return rows;
      };
      expect_rows(expert.gate, staged.gate);
      expect_rows(expert.up, staged.up);
      const IndexRange rows = expect_rows(expert.down, staged.down);
      for (int64_t row = rows.begin; row < rows.end; ++row) ++found[static_cast<size_t>(row)];
      if (expert.down_bias == nullptr) continue;
      EXPECT_EQ(std::memcmp(staged.down_bias, expert.down_bias, static_cast<size_t>(expert.down.rows) * 4), 0);
      EXPECT_EQ(std::memcmp(staged.up_bias, expert.up_bias, static_cast<size_t>(expert.up.rows) * 4), 0);
    }
    EXPECT_EQ(std::ranges::count(found, 1), expert.down.rows) << "each row on one device";
    const int64_t alone = ShareImage(expert, 0, 1).bytes;
    EXPECT_LE(bytes, alone + devices * 4 * 4096) << "images end at multiples of 4096 bytes";
  }
}

INSTANTIATE_TEST_SUITE_P(Weights, TypedModulesTest, ::testing::ValuesIn(TypedModels()),
                         [](const auto& model) { return model.param.name; });

TEST(SliceRows, BlocksAndScalesByRow) {
  const std::vector<uint8_t> data(static_cast<size_t>(PackedBytes(DType::kQ6K, 320, 512)));
  const PackedMatrix slice = SliceRows({.dtype = DType::kQ6K, .rows = 320, .cols = 512, .data = data.data()}, 128, 192);
  EXPECT_EQ(slice.data - data.data(), 2 * 2 * (1152 + 12288));
  EXPECT_EQ(slice.scales, nullptr);
  const std::vector<float> scales(320);
  const PackedMatrix by_row = {
      .dtype = DType::kI8, .rows = 320, .cols = 70, .data = data.data(), .scales = scales.data()};
  EXPECT_EQ(SliceRows(by_row, 128, 192).data - data.data(), 128 * 128);
  EXPECT_EQ(SliceRows(by_row, 128, 192).scales - scales.data(), 128);
}

// Row 128 is the second row of scale blocks and the third row group; both have five blocks of columns.
TEST(SliceRows, TakesEachArrayFromItsOwnRow) {
  const std::vector<uint8_t> data(static_cast<size_t>(PackedBytes(DType::kF8E4M3, 320, 520)));
  const std::vector<float> scales(3 * 5);
  const std::vector<uint32_t> exceptions(5 * 5);
  const PackedMatrix matrix = {DType::kF8E4M3, 320, 520, data.data(), scales.data(), exceptions.data()};
  const PackedMatrix slice = SliceRows(matrix, 128, 192);
  EXPECT_EQ(slice.rows, 192);
  EXPECT_EQ(slice.cols, 520);
  EXPECT_EQ(slice.data - matrix.data, 128 * 520);
  EXPECT_EQ(slice.scales - matrix.scales, 1 * 5);
  EXPECT_EQ(slice.exceptions - matrix.exceptions, 2 * 5);
}

}  // namespace
}  // namespace moestro::engine
