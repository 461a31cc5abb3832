#include "common/checkpoint/model_location.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <map>

#include "tests/common/checkpoint/checkpoint_test_util.h"

namespace moestro::testing {
namespace {

namespace fs = std::filesystem;

constexpr char kCommit[] = "0123456789abcdef0123456789abcdef01234567";

// A cache as Hugging Face's tools lay it out: files of a snapshot are links into blobs/.
class ModelLocationTest : public ::testing::Test {
 protected:
  ModelLocationTest() {
    for (const char* name : {"HF_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME"}) ::unsetenv(name);
    ::setenv("HOME", cache_.path().c_str(), 1);
  }
  fs::path Hub() const { return fs::path(cache_.path()) / ".cache/huggingface/hub"; }
  static fs::path AddSnapshot(const fs::path& hub, const std::string& commit = kCommit) {
    const fs::path repository = hub / "models--org--some-model";
    fs::create_directories(repository / "blobs");
    fs::create_directories(repository / "refs");
    fs::create_directories(repository / "snapshots" / commit);
    std::ofstream(repository / "blobs/b1") << "{}";
    fs::create_symlink("../../blobs/b1", repository / "snapshots" / commit / "config.json");
    return repository;
  }
  static void SetMain(const fs::path& repository, const std::string& commit) {
    std::ofstream(repository / "refs/main") << commit;
  }
  static void ExpectFound(const std::string& model, const fs::path& directory) {
    const auto found = checkpoint::LocateModel(model);
    ASSERT_TRUE(found.ok()) << found.status();
    EXPECT_EQ(found->path, fs::canonical(directory));
    EXPECT_EQ(found->name, "org/some-model");
  }

  TempDir cache_;
};

TEST_F(ModelLocationTest, SnapshotOfMainInEachCache) {
  const fs::path base(cache_.path());
  const auto add = [&](const fs::path& hub) {
    const fs::path repository = AddSnapshot(hub);
    AddSnapshot(hub, std::string(40, 'f'));
    SetMain(repository, kCommit);
    return repository / "snapshots" / kCommit;
  };
  ExpectFound("org/some-model", add(Hub()));
  ::setenv("XDG_CACHE_HOME", (base / "xdg").c_str(), 1);
  ExpectError(checkpoint::LocateModel("org/some-model").status(), absl::StatusCode::kNotFound, {"/xdg/huggingface"});
  ExpectFound("org/some-model", add(base / "xdg/huggingface/hub"));
  ::setenv("HF_HOME", "~/home", 1);
  ExpectFound("org/some-model", add(base / "home/hub"));
  ::setenv("HF_HUB_CACHE", (base / "own").c_str(), 1);
  ExpectFound("org/some-model", add(base / "own"));
}

TEST_F(ModelLocationTest, TheOnlySnapshotNeedsNoRef) {
  const fs::path repository = AddSnapshot(Hub());
  ExpectFound("org/some-model", repository / "snapshots" / kCommit);
  ExpectFound(repository.string(), repository / "snapshots" / kCommit);
  ExpectFound((repository / "snapshots" / kCommit).string(), repository / "snapshots" / kCommit);
  AddSnapshot(Hub(), "ffff");
  ExpectError(checkpoint::LocateModel("org/some-model").status(), absl::StatusCode::kInvalidArgument,
              {"models--org--some-model", "2 snapshots and no refs/main"});
}

TEST_F(ModelLocationTest, AbsentModelsAreNamedWithTheirDownload) {
  const auto status = [](const std::string& model) { return checkpoint::LocateModel(model).status(); };
  const std::vector<std::string> parts = {"org/some-model: not in " + Hub().string(),
                                          "get it with: hf download org/some-model --include '*.[jmst]*'"};
  ExpectError(status("org/some-model"), absl::StatusCode::kNotFound, parts);
  fs::create_directories(Hub() / "models--org--some-model/snapshots");
  ExpectError(status("org/some-model"), absl::StatusCode::kNotFound, parts);
  fs::create_directories(Hub() / "models--org--some-model/snapshots/abc");  // a download that has just begun
  ExpectError(status("org/some-model"), absl::StatusCode::kNotFound, parts);
  for (const char* name : {"/nowhere", "some-model", "a/b/c", "org/", "../no-such-model", "org/a--b", "org/a b"}) {
    ExpectError(status(name), absl::StatusCode::kNotFound, {name, "no such directory"});
  }
}

TEST_F(ModelLocationTest, DamagedCaches) {
  const fs::path repository = AddSnapshot(Hub());
  for (const char* ref : {"fedc", "../../..", "", ".", "a/b"}) {
    SetMain(repository, ref);
    ExpectError(checkpoint::LocateModel("org/some-model").status(), absl::StatusCode::kInvalidArgument,
                {"refs/main names", "download the model again"});
  }
  SetMain(repository, std::string(300, 'a'));
  EXPECT_EQ(checkpoint::LocateModel("org/some-model").status().code(), absl::StatusCode::kInvalidArgument);
  SetMain(repository, std::string(kCommit) + "\n");
  fs::remove(repository / "blobs/b1");  // as where only the snapshot is mounted
  ExpectError(checkpoint::LocateModel((repository / "snapshots" / kCommit).string()).status(),
              absl::StatusCode::kInvalidArgument, {"config.json: a link that leads nowhere", "blobs/"});
}

TEST_F(ModelLocationTest, DirectoriesOfOtherKinds) {
  TempDir plain;
  ExpectError(checkpoint::LocateModel(plain.path()).status(), absl::StatusCode::kNotFound, {"it has no config.json"});
  const std::string file = plain.Write("config.json", "{}");
  const auto found = checkpoint::LocateModel(plain.path() + "/");
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->path, plain.path());
  EXPECT_EQ(found->name, fs::path(plain.path()).filename());
  ExpectError(checkpoint::LocateModel(file).status(), absl::StatusCode::kInvalidArgument, {"not a directory"});
}

TEST_F(ModelLocationTest, Gguf) {
  TempDir plain;
  const std::string file = plain.Write("Model-Q8_0-00001-of-00002.gguf", "");
  for (const std::string& model : {file, plain.path()}) {
    const auto found = checkpoint::LocateModel(model);
    ASSERT_TRUE(found.ok()) << found.status();
    EXPECT_EQ(found->path, fs::canonical(plain.path()).string() + "/Model-Q8_0-00001-of-00002.gguf");
    EXPECT_EQ(found->name, "Model-Q8_0");
  }
  plain.Write("Model-Q4_K_M.gguf", "");
  ExpectError(checkpoint::LocateModel(plain.path()).status(), absl::StatusCode::kInvalidArgument,
              {"2 GGUF models, name the file of one: Model-Q4_K_M.gguf, Model-Q8_0-00001-of-00002.gguf"});
  plain.Write("config.json", "{}");
  EXPECT_EQ(checkpoint::LocateModel(plain.path())->path, fs::canonical(plain.path()));
}

TEST_F(ModelLocationTest, AFileOfAnyNameThatBeginsAsGguf) {
  TempDir plain;
  for (const auto& [file, name] : std::map<std::string, std::string>{
           {"sha256-0123abc", "sha256-0123abc"}, {"M.GGUF", "M"}, {"model.bin", "model"}}) {
    const auto found = checkpoint::LocateModel(plain.Write(file, "GGUF..."));
    ASSERT_TRUE(found.ok()) << file << ": " << found.status();
    EXPECT_EQ(found->path, fs::canonical(plain.path()).string() + "/" + file);
    EXPECT_EQ(found->name, name);
  }
  ExpectError(checkpoint::LocateModel(plain.Write("short", "GGU")).status(), absl::StatusCode::kInvalidArgument,
              {"nor a GGUF file"});
  TempDir upper;
  upper.Write("Model-00002-of-00002.Gguf", "");
  EXPECT_EQ(checkpoint::LocateModel(upper.Write("Model-00001-of-00002.Gguf", ""))->name, "Model");
  EXPECT_EQ(checkpoint::LocateModel(upper.path())->name, "Model");
}

// A snapshot holds links, whose targets have other names.
TEST_F(ModelLocationTest, GgufInTheCache) {
  TempDir cache;
  ::setenv("HF_HUB_CACHE", cache.path().c_str(), 1);
  const fs::path repository = cache.path() + "/models--org--Some-GGUF";
  const fs::path snapshot = repository / "snapshots" / "abc" / "Q4_K_M";
  fs::create_directories(repository / "blobs");
  fs::create_directories(snapshot);
  std::ofstream(repository / "blobs" / "b1") << "x";
  fs::create_symlink("../../../blobs/b1", snapshot / "m-00001-of-00001.gguf");
  const auto found = checkpoint::LocateModel("org/Some-GGUF");
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->path, (fs::canonical(snapshot) / "m-00001-of-00001.gguf").string());
  EXPECT_EQ(found->name, "org/Some-GGUF");
  ExpectError(checkpoint::LocateModel("org/Other-GGUF").status(), absl::StatusCode::kNotFound,
              {"hf download org/Other-GGUF --include '*Q4_K_M*'"});
}

}  // namespace
}  // namespace moestro::testing
