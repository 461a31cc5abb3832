// A store that ends and one that follows it.
#include "services/weight_store/store.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <memory>
#include <string>

#include "common/weights/segment.h"
#include "services/weight_store/load_state.h"

namespace moestro::store {
namespace {

class WeightStoreTest : public ::testing::Test {
 protected:
  WeightStoreTest() {
    config_.node.instance = "storetest" + std::to_string(getpid());
    config_.model_dir = "tests/golden/published/mixtral/checkpoint";
    config_.model_name = "mixtral";
    config_.threads = 1;
    config_.keep_segment = true;
  }
  ~WeightStoreTest() override {
    if (!segment_.empty()) SharedMemory::Unlink(segment_).IgnoreError();
  }

  // Loads, then ends the store, which leaves its segment. Returns whether it packed one.
  bool LoadAndEnd() {
    auto store = WeightStore::Open(config_);
    EXPECT_TRUE(store.ok()) << store.status();
    LoadState state;
    const absl::Status loaded = (*store)->Load(state, [] { return absl::OkStatus(); });
    EXPECT_TRUE(loaded.ok()) << loaded;
    segment_ = state.Get().segment;
    (*store)->Remove();
    return (*store)->load_seconds() > 0;
  }

  // What another release would have written.
  void SetLayoutVersion(uint32_t version) const {
    const int file = shm_open(("/" + segment_).c_str(), O_RDWR, 0);
    ASSERT_GE(file, 0) << segment_;
    EXPECT_EQ(pwrite(file, &version, sizeof version, offsetof(weights::SegmentHeader, layout_version)),
              static_cast<ssize_t>(sizeof version));
    close(file);
  }

  StoreConfig config_;
  std::string segment_;
};

TEST_F(WeightStoreTest, AReadySegmentIsAdopted) {
  EXPECT_TRUE(LoadAndEnd());
  const std::string first = segment_;
  EXPECT_FALSE(LoadAndEnd());
  EXPECT_EQ(segment_, first);
}

TEST_F(WeightStoreTest, ASegmentOfAnotherLayoutIsReplaced) {
  EXPECT_TRUE(LoadAndEnd());
  const std::string first = segment_;
  SetLayoutVersion(2);
  ::testing::internal::CaptureStdout();
  EXPECT_TRUE(LoadAndEnd());
  const std::string log = ::testing::internal::GetCapturedStdout();
  EXPECT_NE(log.find(first + " cannot be adopted"), std::string::npos) << log;
  EXPECT_NE(log.find("layout version 2, this program reads version 3"), std::string::npos) << log;
  EXPECT_NE(log.find("removed " + first), std::string::npos) << log;
  EXPECT_NE(segment_, first);
  EXPECT_EQ(weights::WeightSegment::Open(first).status().code(), absl::StatusCode::kNotFound);
  EXPECT_TRUE(weights::WeightSegment::Open(segment_).ok());
}

}  // namespace
}  // namespace moestro::store
