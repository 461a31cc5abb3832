#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <random>

#include "common/checkpoint/safetensors.h"
#include "common/checkpoint/safetensors_header.h"
#include "tests/common/checkpoint/checkpoint_test_util.h"

namespace moestro::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

struct Malformed {
  const char* name;
  std::string header;
  size_t data_bytes;
  std::vector<std::string> parts;  // of the message, besides the path
};

// One well-formed entry of four bytes.
std::string Entry(const std::string& name, int begin, const std::string& extra = "") {
  return "\"" + name + R"(":{"dtype":"F32","shape":[1],"data_offsets":[)" + std::to_string(begin) + "," +
         std::to_string(begin + 4) + "]" + extra + "}";
}
std::string Fields(const std::string& fields) { return R"({"w":{)" + fields + "}}"; }

std::vector<Malformed> MalformedHeaders() {
  const std::string max = "281474976710656";  // 2^48
  return {
      {"Empty", "", 0, {"not a JSON object"}},
      {"OnlyWhitespace", " \t\r\n", 0, {"not a JSON object"}},
      {"Array", "[]", 0, {"must begin with '{'"}},
      {"ByteOrderMark", "\xef\xbb\xbf{}", 0, {"must begin with '{'"}},
      {"Syntax", "{\"w\":}", 0, {"not valid JSON"}},
      {"Unterminated", "{\"w\":{", 0, {"not valid JSON"}},
      {"TextAfterObject", "{} x", 0, {"not valid JSON"}},
      {"SecondObject", "{}{}", 0, {"not valid JSON"}},
      {"NulPadding", std::string("{}\0\0\0", 5), 0, {"NUL"}},
      {"InvalidUtf8Key", "{" + Entry("w\xff", 0) + "}", 4, {"not valid JSON"}},
      {"InvalidUtf8Metadata", "{\"__metadata__\":{\"a\":\"\xc0\xaf\"}}", 0, {"not valid JSON"}},
      {"LoneSurrogate", R"({"\ud800":{}})", 0, {"not valid JSON"}},
      {"MetadataNumber", R"({"__metadata__":{"a":1}})", 0, {"__metadata__", "a", "not a string"}},
      {"MetadataNull", R"({"__metadata__":{"a":null}})", 0, {"__metadata__", "a", "not a string"}},
      {"MetadataNested", R"({"__metadata__":{"a":{"b":"c"}}})", 0, {"__metadata__", "a", "not a string"}},
      {"MetadataList", R"({"__metadata__":{"a":["b"]}})", 0, {"__metadata__", "a", "not a string"}},
      {"MetadataNotObject", R"({"__metadata__":"a"})", 0, {"__metadata__", "not an object"}},
      {"MetadataDuplicateKey", R"({"__metadata__":{"a":"1","a":"2"}})", 0, {"__metadata__", "a", "duplicate"}},
      {"MetadataTwice", R"({"__metadata__":{},"__metadata__":{}})", 0, {"__metadata__", "duplicate"}},
      {"EntryIsNumber", R"({"w":1})", 0, {"'w'", "not an object"}},
      {"EntryIsArray", R"({"w":[]})", 0, {"'w'", "not an object"}},
      {"UnknownDType", Fields(R"("dtype":"F33","shape":[1],"data_offsets":[0,4])"), 4, {"'w'", "unknown dtype 'F33'"}},
      {"LowerCaseDType",
       Fields(R"("dtype":"f32","shape":[1],"data_offsets":[0,4])"),
       4,
       {"'w'", "unknown dtype 'f32'"}},
      {"DTypeIsNumber", Fields(R"("dtype":4,"shape":[1],"data_offsets":[0,4])"), 4, {"'w'", "dtype", "not a string"}},
      {"MissingDType", Fields(R"("shape":[1],"data_offsets":[0,4])"), 4, {"'w'", "dtype is missing"}},
      {"MissingShape", Fields(R"("dtype":"F32","data_offsets":[0,4])"), 4, {"'w'", "shape is missing"}},
      {"MissingOffsets", Fields(R"("dtype":"F32","shape":[1])"), 4, {"'w'", "data_offsets is missing"}},
      {"ShapeIsNumber", Fields(R"("dtype":"F32","shape":1,"data_offsets":[0,4])"), 4, {"'w'", "shape", "not an array"}},
      {"ShapeIsNull",
       Fields(R"("dtype":"F32","shape":null,"data_offsets":[0,4])"),
       4,
       {"'w'", "shape", "not an array"}},
      {"NestedShape", Fields(R"("dtype":"F32","shape":[[1]],"data_offsets":[0,4])"), 4, {"'w'", "shape", "an integer"}},
      {"TextInShape", Fields(R"("dtype":"F32","shape":["1"],"data_offsets":[0,4])"), 4, {"'w'", "shape", "an integer"}},
      {"NegativeShape", Fields(R"("dtype":"F32","shape":[-1],"data_offsets":[0,4])"), 4, {"'w'", "shape", "negative"}},
      {"FractionalShape", Fields(R"("dtype":"F32","shape":[1.5],"data_offsets":[0,4])"), 4, {"'w'", "shape", "1.5"}},
      {"ExponentShape", Fields(R"("dtype":"F32","shape":[1e0],"data_offsets":[0,4])"), 4, {"'w'", "shape", "1e0"}},
      {"ShapeAbove2To48",
       Fields(R"("dtype":"F32","shape":[281474976710657],"data_offsets":[0,4])"),
       4,
       {"'w'", "2^48"}},
      {"ShapeAbove2To64",
       Fields(R"("dtype":"F32","shape":[18446744073709551617],"data_offsets":[0,4])"),
       4,
       {"'w'", "shape", "too large"}},
      {"RankTooHigh",
       Fields(R"("dtype":"F32","shape":[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1],)"
              R"("data_offsets":[0,4])"),
       4,
       {"'w'", "shape", "more than 32"}},
      {"ProductOverflow",
       Fields(R"("dtype":"F32","shape":[)" + max + "," + max + R"(],"data_offsets":[0,4])"),
       4,
       {"'w'", "overflows"}},
      {"BitsOverflow",
       Fields(R"("dtype":"F64","shape":[)" + max + R"(,8192],"data_offsets":[0,4])"),
       4,
       {"'w'", "overflows"}},
      {"NegativeOffset", Fields(R"("dtype":"F32","shape":[1],"data_offsets":[-4,0])"), 4, {"'w'", "data_offsets"}},
      {"FractionalOffset", Fields(R"("dtype":"F32","shape":[1],"data_offsets":[0,4.0])"), 4, {"'w'", "data_offsets"}},
      {"HugeOffset", Fields(R"("dtype":"F32","shape":[1],"data_offsets":[0,281474976710657])"), 4, {"'w'", "2^48"}},
      {"OneOffset", Fields(R"("dtype":"F32","shape":[1],"data_offsets":[0])"), 4, {"'w'", "data_offsets has 1"}},
      {"ThreeOffsets", Fields(R"("dtype":"F32","shape":[1],"data_offsets":[0,4,8])"), 4, {"'w'", "data_offsets has 3"}},
      {"OffsetsReversed", Fields(R"("dtype":"F32","shape":[1],"data_offsets":[4,0])"), 4, {"'w'", "before it begins"}},
      {"SizeDisagrees", Fields(R"("dtype":"F32","shape":[2],"data_offsets":[0,4])"), 4, {"'w'", "8 bytes", "4"}},
      {"ScalarSizeDisagrees", Fields(R"("dtype":"F32","shape":[],"data_offsets":[0,0])"), 0, {"'w'", "4 bytes"}},
      {"PartialByte", Fields(R"("dtype":"F4","shape":[3],"data_offsets":[0,1])"), 1, {"'w'", "12 bits"}},
      {"DuplicateTensor", "{" + Entry("w", 0) + "," + Entry("w", 4) + "}", 8, {"duplicate key 'w'"}},
      {"DuplicateField",
       Fields(R"("dtype":"F32","dtype":"F32","shape":[1],"data_offsets":[0,4])"),
       4,
       {"'w'", "dtype", "duplicate"}},
      {"DuplicateExtraField", "{" + Entry("w", 0, R"(,"x":1,"x":2)") + "}", 4, {"'w'", "x", "duplicate"}},
      {"HoleAtStart", "{" + Entry("w", 4) + "}", 8, {"'w'", "no tensor holds the bytes from 0"}},
      {"HoleInside", "{" + Entry("a", 0) + "," + Entry("w", 8) + "}", 12, {"'w'", "no tensor holds the bytes from 4"}},
      {"Overlap", "{" + Entry("a", 0) + "," + Entry("w", 2) + "}", 6, {"'w'", "overlaps"}},
      {"SameRangeTwice", "{" + Entry("a", 0) + "," + Entry("w", 0) + "}", 4, {"'w'", "overlaps"}},
      {"DataTruncated", "{" + Entry("a", 0) + "," + Entry("w", 4) + "}", 7, {"'w'", "truncated"}},
      {"TrailingBytes", "{" + Entry("w", 0) + "}", 5, {"1 bytes at the end"}},
      {"DataWithoutTensors", "{}", 8, {"8 bytes at the end"}},
  };
}

class MalformedHeader : public ::testing::TestWithParam<Malformed> {};

TEST_P(MalformedHeader, IsRefused) {
  const TempDir dir;
  const std::string path =
      dir.Write("f.safetensors", RawSafetensors(GetParam().header, std::string(GetParam().data_bytes, 'x')));
  const absl::Status status = checkpoint::OpenSafetensors(path).status();
  ExpectError(status, absl::StatusCode::kInvalidArgument, {path});
  ExpectError(status, absl::StatusCode::kInvalidArgument, GetParam().parts);
}

INSTANTIATE_TEST_SUITE_P(All, MalformedHeader, ::testing::ValuesIn(MalformedHeaders()),
                         [](const auto& test) { return std::string(test.param.name); });

// A file of the eight length bytes `length`, then `rest`.
std::string WithLength(uint64_t length, const std::string& rest) {
  std::string file = RawSafetensors("", "");
  for (int i = 0; i < 8; ++i) file[i] = static_cast<char>(length >> (8 * i) & 0xff);
  return file + rest;
}

TEST(SafetensorsFrame, LengthsAreChecked) {
  const TempDir dir;
  const auto open = [&](const std::string& content) {
    return checkpoint::OpenSafetensors(dir.Write("f.safetensors", content)).status();
  };
  ExpectError(open(""), kInvalid, {"f.safetensors", "0 bytes"});
  ExpectError(open("1234567"), kInvalid, {"f.safetensors", "7 bytes"});
  ExpectError(open(WithLength(3, "{}")), kInvalid, {"f.safetensors", "truncated"});
  ExpectError(open(WithLength(100'000'000, "{}")), kInvalid, {"f.safetensors", "truncated"});
  ExpectError(open(WithLength(100'000'001, "{}")), kInvalid, {"f.safetensors", "100000001 is above the limit"});
  ExpectError(open(WithLength(UINT64_MAX, "{}")), kInvalid, {"f.safetensors", "above the limit"});
  ExpectError(open(WithLength(UINT64_MAX - 7, "{}")), kInvalid, {"f.safetensors", "above the limit"});
}

TEST(SafetensorsFrame, OnlyRegularFilesOpen) {
  const TempDir dir;
  ExpectError(checkpoint::OpenSafetensors(dir.path() + "/absent").status(), absl::StatusCode::kNotFound, {"absent"});
  ExpectError(checkpoint::OpenSafetensors(dir.path()).status(), absl::StatusCode::kInvalidArgument,
              {"not a regular file"});
  const std::string pipe = dir.path() + "/pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  ExpectError(checkpoint::OpenSafetensors(pipe).status(), absl::StatusCode::kInvalidArgument, {"not a regular file"});
}

TEST(SafetensorsRead, GoldenBytes) {
  // Written by hand: two tensors, out of order in the header, at odd offsets, padded with blanks.
  const std::string header =
      R"({"__metadata__":{"format":"pt"},"b":{"dtype":"BF16","shape":[1,2],"data_offsets":[1,5]},)"
      R"("a":{"dtype":"F8_E4M3","shape":[],"data_offsets":[0,1]}} )";
  ASSERT_EQ(header.size(), 145u);
  const std::string file = std::string("\x91\0\0\0\0\0\0\0", 8) + header + std::string("\x38\x80\x3f\x00\xc0", 5);
  EXPECT_EQ(file, RawSafetensors(header, std::string("\x38\x80\x3f\x00\xc0", 5)));
  const TempDir dir;
  std::vector<std::string> warnings;
  absl::StatusOr<checkpoint::TensorFile> opened =
      checkpoint::OpenSafetensors(dir.Write("f.safetensors", file), &warnings);
  ASSERT_TRUE(opened.ok()) << opened.status();
  const checkpoint::TensorFile moved = *std::move(opened);
  EXPECT_THAT(warnings, IsEmpty());
  EXPECT_EQ(moved.size(), 158);
  ASSERT_THAT(moved.tensors(), SizeIs(2));
  const checkpoint::TensorInfo& a = moved.tensors()[0];
  EXPECT_EQ(a.name, "a");
  EXPECT_EQ(a.dtype, DType::kF8E4M3);
  EXPECT_THAT(a.shape, IsEmpty());
  EXPECT_EQ(a.file_offset, 153);
  EXPECT_EQ(a.bytes, 1);
  const checkpoint::TensorInfo& b = moved.tensors()[1];
  EXPECT_EQ(b.name, "b");
  EXPECT_EQ(b.dtype, DType::kBF16);
  EXPECT_EQ(b.dtype_name, "BF16");
  EXPECT_THAT(b.shape, ElementsAre(1, 2));
  EXPECT_EQ(b.file_offset, 154);
  EXPECT_EQ(b.bytes, 4);
  unsigned char bytes[4];
  ASSERT_TRUE(moved.ReadAt(b.file_offset, bytes, b.bytes).ok());
  EXPECT_THAT(bytes, ElementsAre(0x80, 0x3f, 0x00, 0xc0));
}

TEST(SafetensorsRead, WhitespaceAroundTheObjectAndEscapedNames) {
  const TempDir dir;
  const std::string header = "\r\n\t {" + Entry(R"(\u00e9\u0000)", 0) + "} \t\r\n";
  const auto file = checkpoint::OpenSafetensors(dir.Write("f.safetensors", RawSafetensors(header, "1234")));
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->tensors()[0].name, std::string("\xc3\xa9\0", 3));
}

TEST(SafetensorsRead, EmptyTensorsAndEmptyFiles) {
  const TempDir dir;
  const auto none = checkpoint::OpenSafetensors(dir.Write("none", RawSafetensors("{}", "")));
  ASSERT_TRUE(none.ok()) << none.status();
  EXPECT_THAT(none->tensors(), IsEmpty());
  SafetensorsBuilder builder;
  builder.Add("a", "F32", {1}).Add("b", "F32", {0, 5}).Add("c", "I64", {1});
  const auto file = checkpoint::OpenSafetensors(dir.Write("some", builder.Build()));
  ASSERT_TRUE(file.ok()) << file.status();
  ASSERT_THAT(file->tensors(), SizeIs(3));
  EXPECT_EQ(file->tensors()[1].name, "b");
  EXPECT_EQ(file->tensors()[1].bytes, 0);
  EXPECT_EQ(file->tensors()[2].dtype, std::nullopt);
  EXPECT_EQ(file->tensors()[2].dtype_name, "I64");
}

TEST(SafetensorsRead, EveryDTypeOfTheFormat) {
  const std::map<std::string, int> bits = {
      {"BOOL", 8},        {"U8", 8},          {"I8", 8},      {"F8_E4M3", 8}, {"F8_E5M2", 8}, {"F8_E8M0", 8},
      {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}, {"I16", 16},    {"U16", 16},    {"F16", 16},    {"BF16", 16},
      {"I32", 32},        {"U32", 32},        {"F32", 32},    {"C64", 64},    {"F64", 64},    {"I64", 64},
      {"U64", 64},        {"F4", 4},          {"F6_E2M3", 6}, {"F6_E3M2", 6}};
  const TempDir dir;
  for (const auto& [dtype, size] : bits) {
    const std::string header =
        R"({"w":{"dtype":")" + dtype + R"(","shape":[4],"data_offsets":[0,)" + std::to_string(size / 2) + "]}}";
    const auto file = checkpoint::OpenSafetensors(dir.Write("f", RawSafetensors(header, std::string(size / 2, 'x'))));
    ASSERT_TRUE(file.ok()) << file.status();
    EXPECT_EQ(file->tensors()[0].bytes, size / 2) << dtype;
    const bool stored = dtype == "F32" || dtype == "BF16" || dtype == "F16" || dtype == "F8_E4M3" || dtype == "I8";
    EXPECT_EQ(file->tensors()[0].dtype.has_value(), stored) << dtype;
  }
}

TEST(SafetensorsRead, ExtraFieldsAreIgnoredWithOneWarning) {
  const TempDir dir;
  const std::string header = "{" + Entry("a", 0, R"(,"note":"x","deep":[{"shape":[1,{}]},-1.5,null,true])") + "," +
                             Entry("b", 4, R"(,"more":{"dtype":3})") + "}";
  std::vector<std::string> warnings;
  const auto file =
      checkpoint::OpenSafetensors(dir.Write("f.safetensors", RawSafetensors(header, "12345678")), &warnings);
  ASSERT_TRUE(file.ok()) << file.status();
  ASSERT_THAT(warnings, SizeIs(1));
  EXPECT_THAT(warnings[0], HasSubstr("f.safetensors"));
  EXPECT_THAT(warnings[0], HasSubstr("3 unknown field(s)"));
  EXPECT_THAT(warnings[0], HasSubstr("'note' of tensor 'a'"));
}

TEST(SafetensorsRead, DeepNestingIsHarmless) {
  const TempDir dir;
  const std::string deep = std::string(200'000, '[') + std::string(200'000, ']');
  const std::string header = "{" + Entry("a", 0, ",\"x\":" + deep) + "}";
  EXPECT_TRUE(checkpoint::OpenSafetensors(dir.Write("f", RawSafetensors(header, "1234"))).ok());
}

// For any damaged header, the parser rejects it or returns tensors that tile the data.
TEST(SafetensorsHeader, MutationsAreRefusedOrConsistent) {
  const std::string good =
      R"({"__metadata__":{"a":"b"},)" + Entry("a", 0) + "," + Entry("b", 4, R"(,"x":[{"y":1}])") + "}";
  const std::string alphabet = "{}[]\",:0149-.eu\\ \xff";
  std::mt19937 random(1);
  int accepted = 0;
  for (int round = 0; round < 20'000; ++round) {
    std::string header = good;
    for (int edits = 1 + static_cast<int>(random() % 3); edits > 0; --edits) {
      const size_t at = random() % header.size();
      const char byte = alphabet[random() % alphabet.size()];
      if (random() % 3 == 0) {
        header.erase(at, 1);
      } else if (random() % 2 == 0) {
        header.insert(at, 1, byte);
      } else {
        header[at] = byte;
      }
    }
    const auto tensors = checkpoint::ParseSafetensorsHeader(header, 100, 8, "f", nullptr);
    if (!tensors.ok()) {
      ASSERT_EQ(tensors.status().code(), absl::StatusCode::kInvalidArgument) << header;
      continue;
    }
    ++accepted;
    int64_t end = 100;
    for (const checkpoint::TensorInfo& tensor : *tensors) {
      ASSERT_EQ(tensor.file_offset, end) << header;
      end += tensor.bytes;
    }
    ASSERT_EQ(end, 108) << header;
  }
  EXPECT_GT(accepted, 100);  // edits inside names and ignored values are harmless
}

TEST(SafetensorsRead, ReadsStayInsideTheFile) {
  const TempDir dir;
  const std::string path = dir.Write("f", RawSafetensors("{" + Entry("a", 0) + "}", "1234"));
  const auto file = checkpoint::OpenSafetensors(path);
  ASSERT_TRUE(file.ok()) << file.status();
  char buffer[16];
  constexpr auto kOutOfRange = absl::StatusCode::kOutOfRange;
  EXPECT_TRUE(file->ReadAt(file->size() - 4, buffer, 4).ok());
  EXPECT_TRUE(file->ReadAt(file->size(), buffer, 0).ok());
  ExpectError(file->ReadAt(file->size() - 4, buffer, 5), kOutOfRange, {path});
  ExpectError(file->ReadAt(-1, buffer, 1), kOutOfRange, {path});
  ExpectError(file->ReadAt(0, buffer, -1), kOutOfRange, {path});
  ExpectError(file->ReadAt(INT64_MAX, buffer, 16), kOutOfRange, {path});
  ExpectError(file->ReadAt(8, buffer, INT64_MAX), kOutOfRange, {path});
  std::filesystem::resize_file(path, 20);
  ExpectError(file->ReadAt(file->size() - 4, buffer, 4), absl::StatusCode::kDataLoss, {path});
}

}  // namespace
}  // namespace moestro::testing
