// Formats of blocks through the packer. No safetensors file has them: their bytes are in tensors of U8, which a plan by
// hand takes for what they are.
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "common/tensor/block_rows.h"
#include "common/tensor/pack.h"
#include "tests/services/weight_store/pack/pack_in_memory.h"
#include "tests/support/random_blocks.h"
#include "tests/support/random_checkpoint.h"

namespace moestro::store {
namespace {

using testing::ExpectError;
using testing::RandomBlocks;

struct Source {
  weights::TensorPlan plan;
  std::vector<uint8_t> rows;
};

Source LayerInBlocks(DType type, weights::TensorLayout layout, int64_t rows, int64_t cols) {
  const std::string name =
      std::string(layout == weights::TensorLayout::kPacked ? "packed." : "rows.") + DTypeName(type);
  return {{name, type, layout, rows, cols, false}, RandomBlocks(type, rows, cols, static_cast<uint32_t>(type))};
}

Packed PackSources(const std::vector<Source>& sources, const testing::TempDir& dir, int threads) {
  testing::SafetensorsBuilder file;
  for (const Source& source : sources) {
    file.Add(source.plan.name, "U8", {source.plan.rows, RowBytes(source.plan.dtype, source.plan.cols)},
             std::string(source.rows.begin(), source.rows.end()));
  }
  dir.Write("model.safetensors", file.Build());
  dir.Write("config.json", "{}");
  auto checkpoint = checkpoint::Checkpoint::Open(dir.path());
  EXPECT_TRUE(checkpoint.ok()) << checkpoint.status();
  checkpoint::Plan plan;
  for (const Source& source : sources) {
    plan.tensors.push_back(source.plan);
    plan.sources.push_back({checkpoint::TensorSource::Kind::kRows, *checkpoint->Find(source.plan.name), {}});
  }
  return PackInMemory(*checkpoint, plan, weights::ModelSpec(), {.threads = threads});
}

// Wide enough for several chunks of columns, and for a last packed block that is short of inputs.
TEST(PackBlocks, EveryFormatInBothLayouts) {
  std::vector<Source> sources;
  for (const DType type : testing::kBlockFormats) {
    const BlockFormat format = FormatOf(type);
    sources.push_back(LayerInBlocks(type, weights::TensorLayout::kPacked, 130, 20 * format.block + format.row_block));
    sources.push_back(LayerInBlocks(type, weights::TensorLayout::kRowMajor, 70, 3 * format.row_block));
  }
  std::ranges::sort(sources, {}, [](const Source& source) { return source.plan.name; });
  const testing::TempDir dir;
  const Packed packed = PackSources(sources, dir, 2);
  ASSERT_TRUE(packed.status.ok()) << packed.status;
  const auto segment = packed.Open();
  for (const Source& source : sources) {
    const auto& [name, type, layout, rows, cols, has_scales] = source.plan;
    const auto view = segment->Find(name);
    ASSERT_TRUE(view.ok()) << view.status();
    EXPECT_EQ(view->scales, nullptr);
    std::vector<uint8_t> expected = source.rows;
    if (layout == weights::TensorLayout::kPacked) {
      expected.resize(static_cast<size_t>(PackedBytes(type, rows, cols)));
      for (int64_t row = 0; row < rows; row += kRowGroup) {
        PackBlockRows(type, source.rows.data() + row * RowBytes(type, cols), RowBytes(type, cols),
                      std::min(kRowGroup, rows - row), 0, cols,
                      expected.data() + row / kRowGroup * PackedGroupBytes(type, cols));
      }
    }
    ASSERT_EQ(view->bytes, std::ssize(expected)) << name;
    EXPECT_EQ(std::memcmp(view->data, expected.data(), expected.size()), 0) << name;
  }
  EXPECT_TRUE(segment->VerifyData().ok());
}

TEST(PackBlocks, BadScalesAreNamed) {
  for (const DType type : testing::kBlockFormats) {
    for (const auto layout : {weights::TensorLayout::kPacked, weights::TensorLayout::kRowMajor}) {
      const BlockFormat format = FormatOf(type);
      Source source = LayerInBlocks(type, layout, 67, 2 * format.block);
      std::vector<int64_t> places = testing::HalvesOf(type);
      if (places.empty()) places.push_back(HasZeroPoints(type) ? 2 : -1);  // MXFP4's byte 0
      const auto last_block = source.rows.end() - format.row_block_bytes;
      *(last_block + places.front() + 1) = *(last_block + std::max<int64_t>(places.front(), 0)) = 0xff;
      const testing::TempDir dir;
      const Packed packed = PackSources({source}, dir, 1);
      ExpectError(
          packed.status, absl::StatusCode::kInvalidArgument,
          {dir.path() + "/model.safetensors: tensor '" + source.plan.name + "' has a scale that is not finite"});
      EXPECT_EQ(packed.state(), weights::SegmentState::kFailed);
    }
  }
}

// As published: F16's values are not checked, and need no rounding.
TEST(PackBlocks, F16IsPackedAsBf16) {
  weights::ModelSpec spec = OddSpec();
  spec.tied_head = 1;
  RandomCheckpoint random(spec, false);
  for (auto& [name, tensor] : random.tensors()) {
    if (tensor.dtype == "BF16") tensor.dtype = "F16";
  }
  random.Write();
  const checkpoint::Checkpoint checkpoint = random.Open();
  const Packed packed = PackInMemory(checkpoint, spec, {.threads = 2});
  ASSERT_TRUE(packed.status.ok()) << packed.status;
  const auto segment = packed.Open();
  int tensors = 0;
  for (const weights::TensorEntry& entry : segment->directory()) {
    if (entry.dtype != DType::kF16) continue;
    const std::string name = entry.name == std::string("lm_head.weight") ? "model.embed_tokens.weight" : entry.name;
    const auto published = random.tensors().find(name);
    if (published == random.tensors().end()) continue;  // transposed keys
    ++tensors;
    const weights::TensorView view = segment->View(entry);
    for (int64_t row = 0; row < view.rows; ++row) {
      for (int64_t col = 0; col < view.cols; ++col) {
        const bool packed_layout = view.layout == weights::TensorLayout::kPacked;
        const int64_t at = (row * view.cols + col) * 2;
        const int64_t stored = packed_layout ? PackedOffset(DType::kF16, view.cols, row, col) : at;
        ASSERT_EQ(std::memcmp(view.data + stored, published->second.data.data() + at, 2), 0) << name;
      }
    }
  }
  EXPECT_GT(tensors, 20);
}

}  // namespace
}  // namespace moestro::store
