#include "services/router/batches/record_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <vector>

namespace moestro::router {
namespace {

using ::testing::ElementsAre;

class RecordFolderTest : public ::testing::Test {
 protected:
  ~RecordFolderTest() override { std::filesystem::remove_all(path_); }

  void Put(const std::string& file, const std::string& text = "{}") const { std::ofstream(path_ + "/" + file) << text; }
  std::set<std::string> Files() const {
    std::set<std::string> files;
    for (const auto& entry : std::filesystem::directory_iterator(path_)) files.insert(entry.path().filename());
    return files;
  }
  // The names of the records that a new process finds.
  std::vector<std::string> Read(RecordFolder& folder) const {
    std::vector<std::string> names;
    EXPECT_TRUE(folder
                    .ReadAll([&](const std::string& name, const nlohmann::ordered_json&) {
                      names.push_back(name);
                      return absl::OkStatus();
                    })
                    .ok());
    return names;
  }

  const std::string path_ = ::testing::TempDir() + "records_" + std::to_string(getpid());
};

TEST_F(RecordFolderTest, WhatAKilledProcessLeftIsRemoved) {
  std::filesystem::create_directories(path_);
  for (const char* stays : {"a.json", "a.data", "b.damaged", "b.data", "other"}) Put(stays);
  const std::set<std::string> stay = Files();
  for (const char* goes : {"c.data", "d.json.partial", "a.json.partial", "e.data.partial"}) Put(goes);
  RecordFolder folder(path_, ".data");
  EXPECT_THAT(Read(folder), ElementsAre("a"));
  EXPECT_EQ(Files(), stay);
}

TEST_F(RecordFolderTest, TheDataOfADamagedRecordStay) {
  std::filesystem::create_directories(path_);
  Put("a.json", "{");
  Put("a.data");
  for (int process = 0; process < 2; ++process) {
    RecordFolder folder(path_, ".data");
    EXPECT_THAT(Read(folder), ElementsAre());
    EXPECT_THAT(Files(), ElementsAre("a.damaged", "a.data"));
  }
}

TEST_F(RecordFolderTest, ARecordGoesWithItsData) {
  RecordFolder folder(path_, ".data");
  Read(folder);
  ASSERT_TRUE(folder.WriteData("a", "x").ok());
  ASSERT_TRUE(folder.Write("a", {}).ok());
  EXPECT_THAT(Files(), ElementsAre("a.data", "a.json"));
  folder.Remove("a");
  EXPECT_THAT(Files(), ElementsAre());
}

// The clock is set back, in one process and between two.
TEST_F(RecordFolderTest, ANewNameSortsBehindAllBeforeIt) {
  std::vector<std::string> names;
  for (const int seconds : {1000, 500, 2000, 0}) {
    RecordFolder folder(path_, ".data");
    EXPECT_EQ(Read(folder), names);
    for (const int back : {0, 100, 0}) {
      names.push_back(folder.NewName("r_", absl::FromUnixSeconds(seconds - back), /*random=*/100 - names.size()));
      ASSERT_TRUE(folder.Write(names.back(), nlohmann::ordered_json::object()).ok());
    }
  }
  EXPECT_TRUE(std::ranges::is_sorted(names));
  EXPECT_EQ(std::set<std::string>(names.begin(), names.end()).size(), names.size());
}

}  // namespace
}  // namespace moestro::router
