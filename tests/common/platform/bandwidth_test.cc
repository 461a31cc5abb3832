#include "common/platform/bandwidth.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <ctime>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"

namespace moestro {
namespace {

// Every machine is within these bounds, however loaded.
constexpr double kSlowest = 1e6;
constexpr double kFastest = 1e13;

class TemporaryFile {
 public:
  explicit TemporaryFile(int64_t bytes) : path_(::testing::TempDir() + absl::StrCat("moestro-read-rate.", getpid())) {
    std::ofstream(path_) << std::string(bytes, 'x');
  }
  ~TemporaryFile() { std::filesystem::remove(path_); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

TEST(BandwidthTest, CopyIsPlausible) {
  for (const int threads : {1, 3}) {
    const double rate = MeasureCopyBandwidth(threads).value();
    EXPECT_GT(rate, kSlowest);
    EXPECT_LT(rate, kFastest);
  }
}

TEST(BandwidthTest, CopyIsQuick) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "ThreadSanitizer makes every byte copied many times dearer";
#endif
  // CPU time, so that other load on the machine does not count.
  const std::clock_t begin = std::clock();
  ASSERT_TRUE(MeasureCopyBandwidth(1).ok());
  EXPECT_LT(std::clock() - begin, 2 * CLOCKS_PER_SEC) << "0.3 s is usual";
}

TEST(BandwidthTest, CopyNeedsThreads) {
  EXPECT_EQ(MeasureCopyBandwidth(0).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(MeasureCopyBandwidth(-1).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(BandwidthTest, ReadRateIsPlausible) {
  const TemporaryFile file(9 << 20);
  const double rate = MeasureReadRate(file.path()).value();
  EXPECT_GT(rate, kSlowest);
  EXPECT_LT(rate, kFastest);
}

TEST(BandwidthTest, ReadRateErrors) {
  const TemporaryFile empty(0);
  EXPECT_EQ(MeasureReadRate(empty.path()).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(MeasureReadRate(empty.path() + ".missing").status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace moestro
