#include <gtest/gtest.h>

#include <filesystem>
#include <map>

#include "common/checkpoint/checkpoint.h"
#include "tests/common/checkpoint/checkpoint_test_util.h"

namespace moestro::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

constexpr char kIndexName[] = "model.safetensors.index.json";

SafetensorsBuilder OneTensor(const std::string& name) {
  SafetensorsBuilder builder;
  builder.Add(name, "F32", {2});
  return builder;
}

class CheckpointOpen : public ::testing::Test {
 protected:
  CheckpointOpen() { dir_.Write("config.json", "{}"); }

  void WriteShards(const std::map<std::string, SafetensorsBuilder>& shards) {
    for (const auto& [name, builder] : shards) dir_.Write(name, builder.Build());
    dir_.Write(kIndexName, Index(shards));
  }
  void WriteMap(const std::string& weight_map) { dir_.Write(kIndexName, R"({"weight_map":)" + weight_map + "}"); }
  absl::StatusOr<checkpoint::Checkpoint> Open() { return checkpoint::Checkpoint::Open(dir_.path()); }
  std::string Fingerprint() { return Open().value().fingerprint(); }

  TempDir dir_;
};

TEST_F(CheckpointOpen, SingleFile) {
  dir_.Write("model.safetensors", OneTensor("a").Build());
  dir_.Write("consolidated.safetensors", "ignored");
  const auto checkpoint = Open();
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  ASSERT_NE(checkpoint->Find("a"), nullptr);
  EXPECT_EQ(checkpoint->Find("a")->shard, 0);
  EXPECT_EQ(checkpoint->Find("b"), nullptr);
  EXPECT_EQ(checkpoint->total_bytes(), 8);
  EXPECT_THAT(checkpoint->warnings(), IsEmpty());
}

TEST_F(CheckpointOpen, ShardsOfAnyName) {
  WriteShards({{"model-1-of-2.safetensors", OneTensor("a")}, {"x.safetensors", OneTensor("b")}});
  auto opened = Open();
  ASSERT_TRUE(opened.ok()) << opened.status();
  const checkpoint::Checkpoint checkpoint = *std::move(opened);  // the references inside survive
  ASSERT_THAT(checkpoint.shards(), SizeIs(2));
  const checkpoint::TensorRef* ref = checkpoint.Find("b");
  ASSERT_NE(ref, nullptr);
  EXPECT_EQ(ref->info->name, "b");
  EXPECT_THAT(checkpoint.shards()[ref->shard].path(), HasSubstr("x.safetensors"));
  EXPECT_EQ(checkpoint.total_bytes(), 16);
}

TEST_F(CheckpointOpen, SymbolicLinksLikeThoseOfADownloadCache) {
  const TempDir blobs;
  std::filesystem::create_symlink(blobs.Write("blob", OneTensor("a").Build()), dir_.path() + "/model.safetensors");
  EXPECT_TRUE(Open().ok());
}

TEST_F(CheckpointOpen, DocumentsAreGivenOutUnchanged) {
  dir_.Write("model.safetensors", OneTensor("a").Build());
  dir_.Write("config.json", " {} ");
  dir_.Write("generation_config.json", "g");
  dir_.Write("tokenizer.json", "t");
  dir_.Write("chat_template.jinja", "j\n");
  const auto checkpoint = Open();
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  EXPECT_EQ(checkpoint->documents().config_json, " {} ");
  EXPECT_EQ(checkpoint->documents().generation_config_json, "g");
  EXPECT_EQ(checkpoint->documents().tokenizer_json, "t");
  EXPECT_EQ(checkpoint->documents().tokenizer_config_json, "");
  EXPECT_EQ(checkpoint->documents().chat_template_jinja, "j\n");
}

TEST_F(CheckpointOpen, DocumentsFitOneMessage) {
  dir_.Write("model.safetensors", OneTensor("a").Build());
  const std::string tokenizer = dir_.Write("tokenizer.json", "");
  const int64_t most = checkpoint::kMaxDocumentsBytes - 2;  // config.json has the remaining bytes
  std::filesystem::resize_file(tokenizer, most);
  EXPECT_TRUE(Open().ok());
  dir_.Write("tokenizer_config.json", "x");
  ExpectError(Open().status(), kInvalid,
              {dir_.path(), "tokenizer.json", std::to_string(checkpoint::kMaxDocumentsBytes + 1)});
}

TEST_F(CheckpointOpen, ChatTemplateIsUtf8) {
  dir_.Write("model.safetensors", OneTensor("a").Build());
  dir_.Write("chat_template.jinja", "caf\xc3\xa9");
  EXPECT_TRUE(Open().ok());
  dir_.Write("chat_template.jinja", "caf\xe9");
  ExpectError(Open().status(), kInvalid, {"chat_template.jinja: not UTF-8 at byte 3"});
  dir_.Write("chat_template.jinja", "t");
  std::filesystem::create_directory(dir_.path() + "/additional_chat_templates");
  dir_.Write("additional_chat_templates/tool_use.jinja", "u");
  EXPECT_EQ(Open()->documents().tool_use_jinja, "u");
  dir_.Write("additional_chat_templates/tool_use.jinja", "caf\xe9");
  ExpectError(Open().status(), kInvalid, {"additional_chat_templates/tool_use.jinja: not UTF-8 at byte 3"});
}

TEST_F(CheckpointOpen, UnmappedTensorsWarn) {
  SafetensorsBuilder two = OneTensor("a");
  two.Add("extra", "F32", {3});
  dir_.Write("m.safetensors", two.Build());
  WriteMap(R"({"a":"m.safetensors"})");
  const auto checkpoint = Open();
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  ASSERT_THAT(checkpoint->warnings(), SizeIs(1));
  EXPECT_THAT(checkpoint->warnings()[0], HasSubstr("'extra' in m.safetensors"));
  EXPECT_EQ(checkpoint->Find("extra"), nullptr);
  EXPECT_EQ(checkpoint->total_bytes(), 8);
}

TEST_F(CheckpointOpen, MissingPieces) {
  ExpectError(checkpoint::Checkpoint::Open(dir_.path() + "/absent").status(), absl::StatusCode::kNotFound, {"absent"});
  ExpectError(Open().status(), absl::StatusCode::kNotFound, {dir_.path(), kIndexName, "model.safetensors"});
  dir_.Write("model-00001-of-00002.safetensors", OneTensor("a").Build());
  ExpectError(Open().status(), absl::StatusCode::kNotFound, {dir_.path(), kIndexName, "download the index"});
  WriteMap(R"({"a":"model-00001-of-00002.safetensors","b":"model-00002-of-00002.safetensors"})");
  ExpectError(Open().status(), absl::StatusCode::kNotFound, {kIndexName, "model-00002-of-00002.safetensors"});
}

TEST_F(CheckpointOpen, ConfigIsRequired) {
  dir_.Write("model.safetensors", OneTensor("a").Build());
  std::filesystem::remove(dir_.path() + "/config.json");
  ExpectError(Open().status(), absl::StatusCode::kNotFound, {"config.json"});
}

TEST_F(CheckpointOpen, PickleIsRefused) {
  dir_.Write("pytorch_model.bin", "x");
  ExpectError(Open().status(), absl::StatusCode::kUnimplemented, {dir_.path(), "pickle", "safetensors version"});
}

TEST_F(CheckpointOpen, GgufWithoutSafetensors) {
  const std::string path = dir_.Write("model-00001-of-00002.gguf", "no header");
  ExpectError(Open().status(), kInvalid, {path, "this is no GGUF file"});
  ExpectError(checkpoint::Checkpoint::Open(path).status(), kInvalid, {path, "this is no GGUF file"});
  ExpectError(checkpoint::Checkpoint::Open(dir_.path() + "/absent.gguf").status(), absl::StatusCode::kNotFound,
              {"absent.gguf"});
  dir_.Write("model.safetensors", OneTensor("a").Build());
  EXPECT_TRUE(Open().ok()) << Open().status();
}

// What a clone without git-lfs has.
TEST_F(CheckpointOpen, PointersOfGitLfsAreNamed) {
  const std::string pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 16034480\n";
  dir_.Write("model.safetensors", OneTensor("a").Build());
  ASSERT_TRUE(Open().ok()) << Open().status();
  for (const char* name : {"model.safetensors", "tokenizer.json", "chat_template.jinja"}) {
    const std::string path = dir_.Write(name, pointer);
    ExpectError(Open().status(), kInvalid, {path, "a pointer of git-lfs", "git lfs pull"});
    dir_.Write(name, pointer.substr(1));  // some other small text
    EXPECT_THAT(std::string(Open().status().message()), Not(HasSubstr("git-lfs"))) << name;
    std::filesystem::remove(path);
    dir_.Write("model.safetensors", OneTensor("a").Build());
  }
  ExpectError(checkpoint::Checkpoint::Open(dir_.Write("m.gguf", pointer)).status(), kInvalid,
              {"m.gguf: a pointer of git-lfs"});
}

TEST_F(CheckpointOpen, MalformedIndex) {
  const auto refuse = [&](const std::string& index, const std::vector<std::string>& parts) {
    dir_.Write(kIndexName, index);
    ExpectError(Open().status(), kInvalid, {kIndexName});
    ExpectError(Open().status(), kInvalid, parts);
  };
  refuse("", {"not valid JSON"});
  refuse("{", {"not valid JSON"});
  refuse("{}", {"weight_map"});
  refuse(R"({"weight_map":{}})", {"weight_map"});
  refuse(R"({"weight_map":[]})", {"weight_map"});
  refuse(R"({"weight_map":{"a":1}})", {"weight_map", "'a'"});
  refuse(R"({"weight_map":{"a":"m.safetensors","a":"n.safetensors"}})", {"duplicate key 'a'"});
}

TEST_F(CheckpointOpen, ShardNamesArePlainFileNames) {
  for (const char* name : {"", "../m.safetensors", "/etc/m.safetensors", "sub/m.safetensors", "..", "a..safetensors",
                           R"(sub\\m.safetensors)", R"(m.safetensors\u0000.safetensors)"}) {
    WriteMap(std::string(R"({"a":")") + name + R"("})");
    ExpectError(Open().status(), kInvalid, {kIndexName, "'a'", "not a plain file name"});
  }
  WriteMap(R"({"a":"pytorch_model.bin"})");
  ExpectError(Open().status(), kInvalid, {kIndexName, "'a'", "'pytorch_model.bin'", "does not end in .safetensors"});
}

TEST_F(CheckpointOpen, TensorsAreWhereTheIndexSays) {
  dir_.Write("m.safetensors", OneTensor("a").Build());
  dir_.Write("n.safetensors", OneTensor("b").Build());
  WriteMap(R"({"a":"m.safetensors","b":"n.safetensors","c":"n.safetensors"})");
  ExpectError(Open().status(), kInvalid, {"n.safetensors", "'c'", "is missing"});
  WriteMap(R"({"a":"n.safetensors","b":"m.safetensors"})");
  ExpectError(Open().status(), kInvalid, {"is missing, but"});
  dir_.Write("n.safetensors", OneTensor("a").Build());
  WriteMap(R"({"a":"m.safetensors","b":"n.safetensors"})");
  ExpectError(Open().status(), kInvalid, {"n.safetensors", "'a'", "also in m.safetensors"});
}

TEST_F(CheckpointOpen, ABrokenShardNamesItself) {
  dir_.Write("m.safetensors", "short");
  WriteMap(R"({"a":"m.safetensors"})");
  ExpectError(Open().status(), kInvalid, {"m.safetensors", "5 bytes"});
}

TEST_F(CheckpointOpen, FingerprintFollowsEveryInput) {
  const std::string path = dir_.Write("model.safetensors", OneTensor("a").Build());
  const auto stamp = std::filesystem::last_write_time(path);
  const std::string first = Fingerprint();
  EXPECT_EQ(first.size(), 32u);
  EXPECT_EQ(Fingerprint(), first);
  std::vector<std::string> seen = {first};
  const auto expect_new = [&](const char* what) {
    const std::string now = Fingerprint();
    for (const std::string& old : seen) EXPECT_NE(now, old) << what;
    seen.push_back(now);
  };
  dir_.Write("config.json", "{ }");
  expect_new("config.json");
  dir_.Write("generation_config.json", "x");
  expect_new("generation_config.json");
  dir_.Write("tokenizer.json", "x");
  expect_new("tokenizer.json");
  dir_.Write("tokenizer_config.json", "x");
  expect_new("tokenizer_config.json");
  dir_.Write("chat_template.jinja", "x");
  expect_new("chat_template.jinja");
  std::filesystem::create_directory(dir_.path() + "/additional_chat_templates");
  dir_.Write("additional_chat_templates/tool_use.jinja", "x");
  expect_new("additional_chat_templates/tool_use.jinja");
  std::filesystem::last_write_time(path, stamp + std::chrono::seconds(2));
  expect_new("time stamp");
  dir_.Write("model.safetensors", OneTensor("b").Build());
  std::filesystem::last_write_time(path, stamp);
  expect_new("header");
}

}  // namespace
}  // namespace moestro::testing
