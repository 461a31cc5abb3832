#include "services/cli/model/make_model/output_directory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <limits>

namespace moestro::cli {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class OutputDirectoryTest : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = fs::path(::testing::TempDir()) / (std::string("output_directory-") + std::to_string(getpid()) +
                                              ::testing::UnitTest::GetInstance()->current_test_info()->name());
    fs::remove_all(root_);
    fs::create_directories(root_);
  }
  void TearDown() override { fs::remove_all(root_); }

  static void Touch(const fs::path& path) {
    fs::create_directories(path.parent_path());
    std::ofstream(path) << "x";
  }

  fs::path target() const { return root_ / "model"; }
  fs::path partial() const { return root_ / "model.partial"; }

  fs::path root_;
};

TEST_F(OutputDirectoryTest, CommitMovesTheFiles) {
  auto directory = OutputDirectory::Open(target(), false, 0);
  ASSERT_TRUE(directory.ok()) << directory.status();
  Touch(directory->path() / "config.json");
  EXPECT_FALSE(fs::exists(target()));
  ASSERT_TRUE(directory->Commit().ok());
  EXPECT_TRUE(fs::exists(target() / "config.json"));
  EXPECT_FALSE(fs::exists(partial()));
}

TEST_F(OutputDirectoryTest, WithoutCommitNothingIsLeft) {
  {
    auto directory = OutputDirectory::Open(target(), false, 0);
    ASSERT_TRUE(directory.ok());
    Touch(directory->path() / "config.json");
  }
  EXPECT_TRUE(fs::is_empty(root_));
}

TEST_F(OutputDirectoryTest, LeftoversOfAKilledRunAreReplaced) {
  Touch(partial() / "old-shard");
  auto directory = OutputDirectory::Open(target(), false, 0);
  ASSERT_TRUE(directory.ok()) << directory.status();
  EXPECT_TRUE(fs::is_empty(partial()));
}

TEST_F(OutputDirectoryTest, TwoRunsDoNotShareADirectory) {
  auto first = OutputDirectory::Open(target(), false, 0);
  ASSERT_TRUE(first.ok());
  const auto second = OutputDirectory::Open(target(), false, 0);
  EXPECT_EQ(second.status().code(), absl::StatusCode::kFailedPrecondition);
  Touch(first->path() / "config.json");
  EXPECT_TRUE(first->Commit().ok());
}

TEST_F(OutputDirectoryTest, NonEmptyTargetNeedsForce) {
  Touch(target() / "config.json");
  const auto refused = OutputDirectory::Open(target(), false, 0);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(refused.status().message(), HasSubstr("--force"));
  EXPECT_FALSE(fs::exists(partial()));
}

TEST_F(OutputDirectoryTest, ForceReplacesACheckpoint) {
  Touch(target() / "config.json");
  Touch(target() / "stale");
  auto directory = OutputDirectory::Open(target(), true, 0);
  ASSERT_TRUE(directory.ok()) << directory.status();
  Touch(directory->path() / "config.json");
  EXPECT_TRUE(fs::exists(target() / "stale"));
  ASSERT_TRUE(directory->Commit().ok());
  EXPECT_FALSE(fs::exists(target() / "stale"));
  EXPECT_TRUE(fs::exists(target() / "config.json"));
  EXPECT_FALSE(fs::exists(partial()));
}

TEST_F(OutputDirectoryTest, ForceSparesWhatIsNoCheckpoint) {
  Touch(target() / "thesis.tex");
  const auto refused = OutputDirectory::Open(target(), true, 0);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(fs::exists(target() / "thesis.tex"));
}

TEST_F(OutputDirectoryTest, EmptyTargetAndTrailingSlashAreFine) {
  fs::create_directory(target());
  auto directory = OutputDirectory::Open(target().string() + "/", false, 0);
  ASSERT_TRUE(directory.ok()) << directory.status();
  EXPECT_EQ(directory->path(), fs::canonical(partial()));
  Touch(directory->path() / "config.json");
  ASSERT_TRUE(directory->Commit().ok());
  EXPECT_TRUE(fs::exists(target() / "config.json"));
}

TEST_F(OutputDirectoryTest, AFileIsNoTarget) {
  Touch(target());
  EXPECT_EQ(OutputDirectory::Open(target(), true, 0).status().code(), absl::StatusCode::kAlreadyExists);
}

TEST_F(OutputDirectoryTest, MissingSpaceIsFoundBeforeWriting) {
  const auto refused = OutputDirectory::Open(target(), false, std::numeric_limits<int64_t>::max());
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(fs::is_empty(root_));
}

TEST_F(OutputDirectoryTest, EmptyNameIsAnError) {
  EXPECT_EQ(OutputDirectory::Open("", false, 0).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace moestro::cli
