// A folder with a file of requests.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>

#include "common/batch/journal.h"
#include "common/batch/request_file.h"

namespace moestro::batch {

class BatchTest : public ::testing::Test {
 protected:
  BatchTest() { std::filesystem::create_directories(folder_); }
  ~BatchTest() override { std::filesystem::remove_all(folder_); }

  std::string Path(const std::string& name) const { return folder_ + "/" + name; }

  static void Write(const std::string& path, const std::string& text, bool append = false) {
    std::ofstream(path, append ? std::ios::app : std::ios::trunc) << text;
  }
  static std::string Read(const std::string& path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  static std::string Line(const std::string& id, const std::string& body = R"({"prompt": "x"})") {
    return R"({"custom_id": ")" + id + R"(", "method": "POST", "url": "/v1/completions", "body": )" + body + "}\n";
  }

  // A file of requests "0", "1" and so on.
  std::unique_ptr<RequestFile> MakeRequests(size_t count) {
    std::string text;
    for (size_t i = 0; i < count; ++i) text += Line(std::to_string(i));
    Write(Path("in.jsonl"), text);
    return Open();
  }
  std::unique_ptr<RequestFile> Open() {
    RequestFile::Problems problems;
    auto file = RequestFile::Open(Path("in.jsonl"), {}, problems);
    EXPECT_TRUE(file.ok()) << file.status();
    return *std::move(file);
  }
  std::unique_ptr<Journal> OpenJournal(const RequestFile& file) {
    auto journal = Journal::Open(Path("out.journal"), file);
    EXPECT_TRUE(journal.ok()) << journal.status();
    return *std::move(journal);
  }

  const std::string folder_ = ::testing::TempDir() + "batch_" + std::to_string(getpid());
};

}  // namespace moestro::batch
