#include "common/checkpoint/gguf/gguf_file.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "common/checkpoint/gguf/gguf_header.h"
#include "tests/common/checkpoint/checkpoint_test_util.h"
#include "tests/support/gguf_builder.h"

namespace moestro::testing {
namespace {

using checkpoint::GgufValue;
using ::testing::SizeIs;

const std::string kGolden = "tests/golden/gguf/";  // tests run in the source directory

std::string Contents(const std::string& path) {
  std::ostringstream content;
  content << std::ifstream(path, std::ios::binary).rdbuf();
  return content.str();
}

class GgufFile : public ::testing::Test {
 protected:
  absl::StatusOr<checkpoint::GgufModel> Open(const std::string& content) {
    return checkpoint::OpenGguf(dir_.Write("model.gguf", content));
  }
  absl::Status Error(const GgufBuilder& builder) { return Open(builder.Build()).status(); }

  TempDir dir_;
};

GgufBuilder Small() {
  GgufBuilder builder;
  builder.Text("general.architecture", "test").Integer("n", 7).Array("list", GgufType::kU16, {"ab", "cd"});
  return builder.Tensor("a", kTypeF32, {2, 3}, std::string(24, 'a'))
      .Tensor("b", kTypeQ4K, {256}, std::string(144, 'b'));
}

TEST_F(GgufFile, EveryValueOfTheReferenceImplementation) {
  const auto model = checkpoint::OpenGguf(kGolden + "values.gguf");
  ASSERT_TRUE(model.ok()) << model.status();
  const std::map<std::string, GgufValue> expected = {{"u8", int64_t{255}},
                                                     {"i8", int64_t{-128}},
                                                     {"u16", int64_t{65535}},
                                                     {"i16", int64_t{-32768}},
                                                     {"u32", int64_t{4294967295}},
                                                     {"i32", int64_t{-2147483648}},
                                                     {"u64", std::numeric_limits<int64_t>::max()},
                                                     {"i64", std::numeric_limits<int64_t>::min()},
                                                     {"f32", 1e-6F},
                                                     {"f64", 0.1},
                                                     {"yes", true},
                                                     {"text", std::string("Grüße")},
                                                     {"integers", std::vector<int64_t>{1, -2, 3}},
                                                     {"floats", std::vector<float>{0.5F, -1.5F}},
                                                     {"flags", std::vector<bool>{true, false}},
                                                     {"texts", std::vector<std::string>{"a", "", "ünïcode"}},
                                                     {"general.architecture", std::string("test")}};
  EXPECT_THAT(model->metadata.values(), SizeIs(expected.size()));
  for (const auto& [key, value] : expected) {
    ASSERT_NE(model->metadata.Find(key), nullptr) << key;
    EXPECT_TRUE(*model->metadata.Find(key) == value) << key;
  }
}

TEST_F(GgufFile, EveryTensorOfTheReferenceImplementation) {
  const auto model = checkpoint::OpenGguf(kGolden + "values.gguf");
  ASSERT_TRUE(model.ok()) << model.status();
  // As the package's reader lists them.
  struct Expected {
    const char* name;
    const char* type;
    std::optional<DType> dtype;
    std::vector<int64_t> shape;
    int64_t offset;
    int64_t bytes;
  };
  const Expected expected[] = {
      {"vector", "F32", DType::kF32, {5}, 1024, 20},          {"half", "F16", DType::kF16, {3, 4}, 1056, 24},
      {"BF16", "BF16", DType::kBF16, {2, 64}, 1088, 256},     {"Q8_0", "Q8_0", DType::kQ8_0, {2, 64}, 1344, 136},
      {"Q4_0", "Q4_0", DType::kQ4_0, {2, 64}, 1504, 72},      {"Q5_0", "Q5_0", DType::kQ5_0, {2, 64}, 1600, 88},
      {"Q4_K", "Q4_K", DType::kQ4K, {2, 3, 256}, 1696, 864},  {"Q5_K", "Q5_K", DType::kQ5K, {2, 3, 256}, 2560, 1056},
      {"Q6_K", "Q6_K", DType::kQ6K, {2, 3, 256}, 3616, 1260}, {"MXFP4", "MXFP4", DType::kMXFP4, {2, 3, 256}, 4896, 816},
      {"Q4_1", "Q4_1", DType::kQ4_1, {2, 3, 256}, 5728, 960}};
  const std::vector<checkpoint::TensorInfo>& tensors = model->files.front().tensors();
  ASSERT_THAT(tensors, SizeIs(std::size(expected)));
  for (size_t i = 0; i < tensors.size(); ++i) {
    EXPECT_EQ(tensors[i].name, expected[i].name);
    EXPECT_EQ(tensors[i].dtype_name, expected[i].type);
    EXPECT_EQ(tensors[i].dtype, expected[i].dtype) << tensors[i].name;
    EXPECT_EQ(tensors[i].shape, expected[i].shape) << tensors[i].name;
    EXPECT_EQ(tensors[i].file_offset, expected[i].offset) << tensors[i].name;
    EXPECT_EQ(tensors[i].bytes, expected[i].bytes) << tensors[i].name;
    if (!tensors[i].dtype) continue;
    EXPECT_EQ(tensors[i].bytes / RowBytes(*tensors[i].dtype, tensors[i].shape.back()) * tensors[i].shape.back(),
              std::accumulate(tensors[i].shape.begin(), tensors[i].shape.end(), int64_t{1}, std::multiplies<>()))
        << tensors[i].name;
  }
}

TEST_F(GgufFile, SplitOfTheReferenceImplementation) {
  const auto model = checkpoint::OpenGguf(kGolden + "split-00001-of-00002.gguf");
  ASSERT_TRUE(model.ok()) << model.status();
  ASSERT_THAT(model->files, SizeIs(2));
  EXPECT_EQ(model->files[1].tensors().front().name, "b");
  EXPECT_EQ(**model->metadata.Text("text"), "first");
  EXPECT_EQ(checkpoint::GgufModelName(kGolden + "split-00001-of-00002.gguf"), "split");
}

TEST_F(GgufFile, SplitsThatDoNotBelongTogether) {
  const std::string first = Contents(kGolden + "split-00001-of-00002.gguf");
  const std::string second = Contents(kGolden + "split-00002-of-00002.gguf");
  const std::string path = dir_.Write("m-00001-of-00002.gguf", first);
  const std::string other = dir_.Write("m-00002-of-00002.gguf", second);
  ASSERT_TRUE(checkpoint::OpenGguf(path).ok());
  ExpectError(checkpoint::OpenGguf(other).status(), kInvalid, {"'split.no': 1, not 0", "name the first one"});
  ExpectError(checkpoint::OpenGguf(dir_.Write("renamed.gguf", first)).status(), kInvalid,
              {"renamed.gguf", "'split.count'", "-00001-of-00002.gguf"});
  ExpectError(checkpoint::OpenGguf(dir_.Write("m-00001-of-00003.gguf", first)).status(), kInvalid, {"'split.count'"});
  dir_.Write("m-00002-of-00002.gguf", first);
  ExpectError(checkpoint::OpenGguf(path).status(), kInvalid, {"m-00002-of-00002.gguf", "'split.no': 0, not 1"});
  std::filesystem::remove(other);
  ExpectError(checkpoint::OpenGguf(path).status(), absl::StatusCode::kNotFound, {"m-00002-of-00002.gguf"});

  const auto part = [&](uint32_t number, uint32_t count, uint32_t tensors, const std::string& tensor) {
    GgufBuilder builder;
    builder.Integer("split.no", number).Integer("split.count", count).Integer("split.tensors.count", tensors);
    builder.Tensor(tensor, kTypeF32, {1}, "abcd");
    return dir_.Write(absl::StrCat("n-0000", number + 1, "-of-00002.gguf"), builder.Build());
  };
  const std::string begin = part(0, 2, 2, "a");
  part(1, 2, 2, "a");
  ExpectError(checkpoint::OpenGguf(begin).status(), kInvalid, {"n-00002-of-00002.gguf", "'a' is also in", "n-00001"});
  part(1, 3, 2, "b");
  ExpectError(checkpoint::OpenGguf(begin).status(), kInvalid, {"'split.count': 3, but the first file says 2"});
  part(1, 2, 2, "b");
  EXPECT_TRUE(checkpoint::OpenGguf(begin).ok());
  part(0, 2, 5, "a");
  ExpectError(checkpoint::OpenGguf(begin).status(), kInvalid, {"'split.tensors.count': 5, but the files have 2"});
  part(0, 100000, 2, "a");
  ExpectError(checkpoint::OpenGguf(begin).status(), kInvalid, {"'split.count': 100000 is not from 0 to 512"});
}

TEST_F(GgufFile, OtherVersionsAndFiles) {
  const std::string good = Small().Build();
  const auto error = [&](size_t at, const std::string& bytes) {
    std::string damaged = good;
    damaged.replace(at, bytes.size(), bytes);
    return Open(damaged).status();
  };
  ASSERT_TRUE(Open(good).ok());
  EXPECT_TRUE(error(4, RawBytes<uint32_t>(2)).ok());
  ExpectError(error(0, "GGML"), kInvalid, {"no GGUF file"});
  ExpectError(error(4, RawBytes<uint32_t>(1)), kInvalid, {"version 1 is not supported"});
  ExpectError(error(4, RawBytes<uint32_t>(4)), kInvalid, {"version 4 is not supported"});
  ExpectError(error(4, RawBytes<uint32_t>(3 << 24)), kInvalid, {"big-endian"});
  ExpectError(error(8, RawBytes<uint64_t>(1) + RawBytes(uint64_t{1} << 60)), kInvalid,
              {"a list of 1152921504606846976 metadata keys does not fit into the file"});
  ExpectError(error(8, RawBytes(uint64_t{1} << 60)), kInvalid, {"a list of 1152921504606846976 tensors"});
  ExpectError(error(24, RawBytes<uint64_t>(70000)), kInvalid, {"a metadata key of 70000 bytes"});
}

TEST_F(GgufFile, DamagedMetadata) {
  const auto with = [](const std::string& key, GgufType type, const std::string& value) {
    return GgufBuilder().Raw(key, type, value);
  };
  const auto array = [](uint32_t type, uint64_t count) { return RawBytes(type) + RawBytes(count); };
  ExpectError(Error(with("", GgufType::kU8, "x")), kInvalid, {"key is empty"});
  ExpectError(Error(with("k", static_cast<GgufType>(13), "x")), kInvalid, {"'k': has unknown type 13"});
  ExpectError(Error(with("k", GgufType::kBool, "\2")), kInvalid, {"'k': has a boolean of 2"});
  ExpectError(Error(with("k", GgufType::kU64, std::string(8, '\xff'))), kInvalid, {"'k'", "is too large"});
  ExpectError(Error(with("k", GgufType::kString, RawBytes(uint64_t{1} << 62))), kInvalid, {"'k' does not fit"});
  ExpectError(Error(with("k", GgufType::kArray, array(9, 1))), kInvalid, {"'k': is an array of arrays"});
  ExpectError(Error(with("k", GgufType::kArray, array(99, 1))), kInvalid, {"'k': has unknown type 99"});
  ExpectError(Error(with("k", GgufType::kArray, array(8, uint64_t{1} << 61))), kInvalid, {"elements does not fit"});
  ExpectError(Error(GgufBuilder().Integer("k", 1).Integer("k", 1)), kInvalid, {"'k': is there twice"});
  ExpectError(Error(GgufBuilder().Integer("general.alignment", 24)), kInvalid, {"24 is no power of two"});
  ExpectError(Error(GgufBuilder().Integer("general.alignment", 0)), kInvalid, {"0 is not from 1 to"});
  ExpectError(Error(GgufBuilder().Text("general.alignment", "x")), kInvalid, {"is text, not an integer"});
  const auto model = Open(Small().Build());
  ASSERT_TRUE(model.ok()) << model.status();
  ExpectError(model->metadata.Integer("absent", 0, 1).status(), kInvalid, {"model.gguf", "'absent': missing"});
  ExpectError(model->metadata.Integer("n", 0, 6).status(), kInvalid, {"'n': 7 is not from 0 to 6"});
  ExpectError(model->metadata.Flag("list").status(), kInvalid, {"'list': is an array of integers, not a boolean"});
}

// A small file can hold no more than its own elements; one of 64 MB can hold more than the limit.
TEST_F(GgufFile, TooManyElements) {
  const std::string many(static_cast<size_t>(checkpoint::kMaxGgufArrayElements) + 1, '\0');
  const std::string count = RawBytes<uint32_t>(0) + RawBytes<uint64_t>(many.size());
  ExpectError(Error(GgufBuilder().Raw("k", GgufType::kArray, count + many)), kInvalid, {"'k'", "more than 16777216"});
}

TEST_F(GgufFile, DamagedTensors) {
  const std::string row(8, 'x');
  const auto one = [&](const std::string& name, uint32_t type, const std::vector<uint64_t>& extents) {
    return Error(GgufBuilder().Tensor(name, type, extents, row));
  };
  EXPECT_TRUE(one("t", kTypeF32, {2}).ok());
  ExpectError(one("", kTypeF32, {2}), kInvalid, {"the name of a tensor is empty"});
  ExpectError(one("t", 4, {2}), kInvalid, {"'t': has unknown type 4"});
  ExpectError(one("t", 1000, {2}), kInvalid, {"'t': has unknown type 1000", "get the model as Q4_K_M"});
  ExpectError(one("t", kTypeF32, {}), kInvalid, {"'t': has 0 dimensions"});
  ExpectError(one("t", kTypeF32, {1, 1, 1, 1, 1}), kInvalid, {"'t': has 5 dimensions"});
  ExpectError(one("t", kTypeF32, {2, 0}), kInvalid, {"'t': has a dimension of 0"});
  ExpectError(one("t", kTypeF32, {uint64_t{1} << 49}), kInvalid, {"'t': has a dimension of"});
  ExpectError(one("t", kTypeF32, {uint64_t{1} << 48, uint64_t{1} << 48}), kInvalid, {"'t': its size overflows"});
  ExpectError(one("t", kTypeQ4K, {255}), kInvalid, {"'t': has rows of 255 elements, not whole blocks of 256 (Q4_K)"});
  ExpectError(one("t", kTypeF32, {100}), kInvalid, {"'t': 400 bytes from byte", "are not in the file"});
  ExpectError(Error(GgufBuilder().TensorAt(0, "t", kTypeF32, {1}).TensorAt(0, "t", kTypeF32, {1})), kInvalid,
              {"'t': is there twice"});
  ExpectError(Error(GgufBuilder().TensorAt(8, "t", kTypeF32, {1})), kInvalid, {"no multiple of 32"});
  ExpectError(Error(GgufBuilder().TensorAt(uint64_t{1} << 63, "t", kTypeF32, {1})), kInvalid, {"is not in the file"});
  ExpectError(Error(GgufBuilder().Tensor("a", kTypeF32, {2}, row).TensorAt(0, "b", kTypeF32, {1})), kInvalid,
              {"overlaps tensor"});
}

TEST_F(GgufFile, Alignment) {
  GgufBuilder builder;
  builder.Integer("general.alignment", 128).Alignment(128);
  builder.Tensor("a", kTypeF32, {1}, "aaaa").Tensor("b", kTypeF32, {1}, "bbbb");
  const auto model = Open(builder.Build());
  ASSERT_TRUE(model.ok()) << model.status();
  const checkpoint::TensorInfo& b = model->files.front().tensors().back();
  EXPECT_EQ(b.file_offset % 128, 0);
  std::string bytes(4, '\0');
  ASSERT_TRUE(model->files.front().ReadAt(b.file_offset, bytes.data(), b.bytes).ok());
  EXPECT_EQ(bytes, "bbbb");
}

TEST_F(GgufFile, CutAtEveryByte) {
  const std::string whole = Small().Build();
  for (size_t size = 0; size < whole.size() - (160 - 144); ++size) {  // what pads the last tensor may be missing
    const absl::Status status = Open(whole.substr(0, size)).status();
    ASSERT_EQ(status.code(), kInvalid) << size << ": " << status;
  }
}

// Whatever the bytes are: an error that names the file, or a model whose tensors lie in it.
TEST_F(GgufFile, DamagedBytes) {
  const std::string header = Small().Header(), whole = Small().Build();
  std::mt19937 random(1);  // NOLINT: the same damage each time
  const auto check = [&](const std::string& damaged) {
    const auto model = Open(damaged);
    if (!model.ok()) {
      ASSERT_EQ(model.status().code(), kInvalid) << model.status();
      ASSERT_THAT(std::string(model.status().message()), ::testing::HasSubstr("model.gguf"));
      return;
    }
    for (const checkpoint::TensorInfo& tensor : model->files.front().tensors()) {
      ASSERT_LE(tensor.file_offset + tensor.bytes, static_cast<int64_t>(damaged.size()));
    }
  };
  for (size_t at = 0; at < header.size(); ++at) {
    for (const int value : {0, 1, 0x7f, 0x80, 0xff}) {
      std::string damaged = whole;
      damaged[at] = static_cast<char>(value);
      check(damaged);
    }
  }
  for (int round = 0; round < 3000; ++round) {
    std::string damaged = whole;
    for (uint32_t i = 0; i < 1 + random() % 4; ++i) damaged[random() % header.size()] = static_cast<char>(random());
    check(damaged);
  }
}

TEST_F(GgufFile, FindsTheOnlyModelOfADirectory) {
  const auto found = [&] { return checkpoint::FindGguf(dir_.path()); };
  ExpectError(found().status(), absl::StatusCode::kNotFound, {dir_.path(), "no GGUF file"});
  std::filesystem::create_directory(dir_.path() + "/Q4_K_M");
  for (const char* name : {"/Q4_K_M/m-00001-of-00002.gguf", "/Q4_K_M/m-00002-of-00002.gguf", "/mmproj-F16.gguf"}) {
    dir_.Write(name, "");
  }
  ASSERT_TRUE(found().ok()) << found().status();
  EXPECT_EQ(*found(), dir_.path() + "/Q4_K_M/m-00001-of-00002.gguf");
  dir_.Write("m-Q8_0.gguf", "");
  ExpectError(found().status(), kInvalid, {"2 GGUF models", "Q4_K_M/m-00001-of-00002.gguf, m-Q8_0.gguf"});
}

}  // namespace
}  // namespace moestro::testing
