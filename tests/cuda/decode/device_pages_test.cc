// The device's copy of KV pages; on the host device, whose memory the test can read.
#include "common/engine/cuda/device_pages.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <numeric>
#include <vector>

#include "common/device/host/host_device.h"

namespace moestro::engine {
namespace {

class DevicePagesTest : public ::testing::Test {
 protected:
  DevicePagesTest() : pool_(static_cast<size_t>(kGeometry.page_count * kGeometry.page_bytes())) {
    std::iota(pool_.begin(), pool_.end(), uint8_t{1});
    for (int64_t page = 0; page < kGeometry.page_count; ++page) {
      pool_[static_cast<size_t>(page * kGeometry.page_bytes())] = static_cast<uint8_t>(100 + page);
    }
    UsePlaces(kGeometry.page_count);
  }
  void UsePlaces(int64_t places) {
    device_pages_ = std::make_unique<DevicePages>(device_->Allocate(places * kGeometry.page_bytes(), "pages").value(),
                                                  kGeometry, places);
    std::memset(Device(), 0, static_cast<size_t>(places * kGeometry.page_bytes()));
  }
  kv::KvPages Pages(uint64_t lease, std::span<const uint32_t> list) { return {kGeometry, pool_.data(), list, lease}; }
  uint8_t* Device() const { return device_pages_->View(0, nullptr).pages; }
  absl::Status TakeTokens(const kv::KvPages& pages, int64_t tokens, int lane = 0) {
    taken_.clear();
    return device_pages_->Take(lane, pages, tokens, tokens, nullptr, *stream_, taken_);
  }
  // Pages that were copied for a lane's step.
  int64_t Take(const kv::KvPages& pages, int64_t tokens, int lane = 0) {
    const int64_t before = device_pages_->copied_pages();
    EXPECT_TRUE(TakeTokens(pages, tokens, lane).ok());
    EXPECT_TRUE(stream_->Synchronize().ok());
    return device_pages_->copied_pages() - before;
  }
  // The same of a step that is done.
  int64_t CopyMissingPages(const kv::KvPages& pages, int64_t tokens) {
    const int64_t copied = Take(pages, tokens);
    device_pages_->LetGo(0, true);
    return copied;
  }
  // Whether the sequence that was taken last has the pool's bytes of this page in its place `block`.
  bool IsThere(size_t block, uint32_t page) const {
    const auto bytes = static_cast<size_t>(kGeometry.page_bytes());
    return std::memcmp(Device() + taken_[block] * bytes, pool_.data() + page * bytes, bytes) == 0;
  }

  static constexpr kv::KvGeometry kGeometry{.num_layers = 2, .kv_dim = 8, .page_count = 6};
  std::vector<uint8_t> pool_;
  const std::unique_ptr<device::Device> device_ = device::NewHostDevice({});
  const std::unique_ptr<device::Stream> stream_ = device_->NewStream("test").value();
  std::unique_ptr<DevicePages> device_pages_;
  std::vector<uint32_t> taken_;
};

TEST_F(DevicePagesTest, BringsWhatIsMissing) {
  const uint32_t list[] = {4, 1, 3};
  EXPECT_EQ(CopyMissingPages(Pages(7, list), 0), 0);
  EXPECT_EQ(CopyMissingPages(Pages(7, list), 65), 2);
  EXPECT_TRUE(taken_.size() == 2 && IsThere(0, 4) && IsThere(1, 1));
  device_pages_->MarkResident(7, 66);
  EXPECT_EQ(CopyMissingPages(Pages(7, list), 66), 0);
  EXPECT_EQ(CopyMissingPages(Pages(7, list), 40), 0) << "a step that is done again";
  EXPECT_EQ(CopyMissingPages(Pages(7, list), 130), 2) << "what another process has written meanwhile";
  EXPECT_TRUE(IsThere(2, 3));
}

TEST_F(DevicePagesTest, AnotherLeaseIsCopiedAnew) {
  const uint32_t list[] = {0, 5};
  EXPECT_EQ(CopyMissingPages(Pages(7, list), 128), 2);
  device_pages_->MarkResident(7, 128);
  pool_[0] = 200;
  EXPECT_FALSE(IsThere(0, 0));
  EXPECT_EQ(CopyMissingPages(Pages(8, list), 64), 1);
  EXPECT_TRUE(IsThere(0, 0));
  EXPECT_EQ(CopyMissingPages(Pages(0, list), 64), 1) << "without a name it is never known";
  device_pages_->MarkResident(0, 64);
  EXPECT_EQ(CopyMissingPages(Pages(0, list), 64), 1);
}

TEST_F(DevicePagesTest, LeasesThatDidNotComeForLongAreForgotten) {
  const uint32_t list[] = {0};
  for (uint64_t lease = 1; lease <= 300; ++lease) {
    CopyMissingPages(Pages(lease, list), 64);
    device_pages_->MarkResident(lease, 64);
  }
  EXPECT_EQ(CopyMissingPages(Pages(300, list), 64), 0);
  EXPECT_EQ(CopyMissingPages(Pages(1, list), 64), 1);
}

TEST_F(DevicePagesTest, RefusesPagesOfAnotherPool) {
  const uint32_t list[] = {6};
  EXPECT_EQ(TakeTokens(Pages(7, list), 1).code(), absl::StatusCode::kInternal);
}

TEST_F(DevicePagesTest, PagesUsedLongestAgoLoseTheirPlaces) {
  UsePlaces(3);
  const uint32_t a[] = {0, 1}, b[] = {2}, c[] = {3, 4};
  const auto step = [&](uint64_t lease, std::span<const uint32_t> list) {
    const int64_t tokens = std::ssize(list) * kv::kPageTokens, copied = CopyMissingPages(Pages(lease, list), tokens);
    device_pages_->MarkResident(lease, tokens);
    for (size_t block = 0; block < list.size(); ++block) EXPECT_TRUE(IsThere(block, list[block])) << lease;
    return copied;
  };
  EXPECT_EQ(step(1, a), 2);
  EXPECT_EQ(step(2, b), 1);
  EXPECT_EQ(step(1, a), 0) << "all three have places";
  EXPECT_EQ(step(3, c), 2) << "in place of page 2, and of the first of lease 1";
  EXPECT_EQ(step(1, a), 1) << "page 1 kept its place";
  EXPECT_EQ(step(2, b), 1);
}

TEST_F(DevicePagesTest, PagesOfAStepKeepTheirPlaces) {
  UsePlaces(3);
  const uint32_t a[] = {0, 1}, b[] = {2, 3}, c[] = {4};
  EXPECT_EQ(Take(Pages(1, a), 128, /*lane=*/0), 2);
  EXPECT_EQ(TakeTokens(Pages(2, b), 128, /*lane=*/1).code(), absl::StatusCode::kResourceExhausted);
  device_pages_->LetGo(1, false);
  EXPECT_EQ(Take(Pages(3, c), 64, /*lane=*/1), 1) << "the failed step's place is free";
  taken_ = {0, 1};
  EXPECT_TRUE(IsThere(0, 0) && IsThere(1, 1));
  device_pages_->LetGo(0, true);
  device_pages_->LetGo(1, true);
  EXPECT_EQ(Take(Pages(2, b), 128, /*lane=*/1), 2);
}

TEST_F(DevicePagesTest, CopiesOfAStepThatFailedCountForNothing) {
  const uint32_t list[] = {0, 1};
  EXPECT_EQ(CopyMissingPages(Pages(7, list), 128), 2);
  device_pages_->MarkResident(7, 128);
  UsePlaces(6);
  device_pages_->MarkResident(7, 128);
  EXPECT_EQ(Take(Pages(7, list), 128), 2) << "none has a place";
  device_pages_->LetGo(0, false);
  EXPECT_EQ(Take(Pages(7, list), 128), 2);
  device_pages_->LetGo(0, true);
  EXPECT_EQ(Take(Pages(7, list), 128), 0);
}

// A page that both lanes read: the other lane's copy may still be on its way.
TEST_F(DevicePagesTest, ALaneDoesNotRelyOnTheOthersCopy) {
  const uint32_t list[] = {0};
  device_pages_->MarkResident(7, 64);
  device_pages_->MarkResident(8, 64);
  EXPECT_EQ(Take(Pages(7, list), 64, /*lane=*/0), 1);
  EXPECT_EQ(Take(Pages(8, list), 64, /*lane=*/1), 1);
  device_pages_->LetGo(0, true);
  device_pages_->LetGo(1, true);
  EXPECT_EQ(Take(Pages(8, list), 64, /*lane=*/1), 0);
}

TEST_F(DevicePagesTest, ViewsALayer) {
  const cuda::KvPagesView view = device_pages_->View(1, nullptr);
  EXPECT_EQ(view.layer_offset, kv::kPageTokens * 8 * 2);
  EXPECT_EQ(view.page_bytes, 2 * kv::kPageTokens * 8 * 2);
  EXPECT_EQ(view.kv_dim, 8);
}

}  // namespace
}  // namespace moestro::engine
