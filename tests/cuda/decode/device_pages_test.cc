// The device's copy of KV pages; on the host device, whose memory the test can read.
#include "common/engine/cuda/device_pages.h"

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <vector>

#include "common/device/host/host_device.h"

namespace moestro::engine {
namespace {

class DevicePagesTest : public testing::Test {
 protected:
  DevicePagesTest() : pool_(static_cast<size_t>(kGeometry.page_count * kGeometry.page_bytes())) {
    std::iota(pool_.begin(), pool_.end(), uint8_t{1});
    std::memset(Device(), 0, pool_.size());
  }
  kv::KvPages Pages(uint64_t lease, std::span<const uint32_t> list) { return {kGeometry, pool_.data(), list, lease}; }
  uint8_t* Device() const { return device_pages_.View(0, nullptr).pages; }
  // Pages that were copied for it.
  int64_t CopyMissingPages(const kv::KvPages& pages, int64_t tokens) {
    const int64_t before = device_pages_.copied_pages();
    EXPECT_TRUE(device_pages_.CopyMissingPages(pages, tokens, nullptr, *stream_).ok());
    EXPECT_TRUE(stream_->Synchronize().ok());
    return device_pages_.copied_pages() - before;
  }
  bool IsThere(uint32_t page) const {
    const auto bytes = static_cast<size_t>(kGeometry.page_bytes());
    return std::memcmp(Device() + page * bytes, pool_.data() + page * bytes, bytes) == 0;
  }

  static constexpr kv::KvGeometry kGeometry{.num_layers = 2, .kv_dim = 8, .page_count = 6};
  std::vector<uint8_t> pool_;
  const std::unique_ptr<device::Device> device_ = device::NewHostDevice({});
  const std::unique_ptr<device::Stream> stream_ = device_->NewStream("test").value();
  DevicePages device_pages_{device_->Allocate(kGeometry.page_count * kGeometry.page_bytes(), "pages").value(),
                            kGeometry};
};

TEST_F(DevicePagesTest, BringsWhatIsMissing) {
  const uint32_t list[] = {4, 1, 3};
  EXPECT_EQ(CopyMissingPages(Pages(7, list), 0), 0);
  EXPECT_EQ(CopyMissingPages(Pages(7, list), 65), 2);
  EXPECT_TRUE(IsThere(4) && IsThere(1));
  EXPECT_FALSE(IsThere(3) || IsThere(0) || IsThere(2) || IsThere(5));
  device_pages_.MarkResident(7, 66);
  EXPECT_EQ(CopyMissingPages(Pages(7, list), 66), 0);
  EXPECT_EQ(CopyMissingPages(Pages(7, list), 40), 0) << "a step that is done again";
  EXPECT_EQ(CopyMissingPages(Pages(7, list), 130), 2) << "what another process has written meanwhile";
  EXPECT_TRUE(IsThere(3));
}

TEST_F(DevicePagesTest, AnotherLeaseIsCopiedAnew) {
  const uint32_t list[] = {0, 5};
  EXPECT_EQ(CopyMissingPages(Pages(7, list), 128), 2);
  device_pages_.MarkResident(7, 128);
  pool_[0] = 200;
  EXPECT_FALSE(IsThere(0));
  EXPECT_EQ(CopyMissingPages(Pages(8, list), 64), 1);
  EXPECT_TRUE(IsThere(0));
  EXPECT_EQ(CopyMissingPages(Pages(0, list), 64), 1) << "without a name it is never known";
  device_pages_.MarkResident(0, 64);
  EXPECT_EQ(CopyMissingPages(Pages(0, list), 64), 1);
}

TEST_F(DevicePagesTest, LeasesThatDidNotComeForLongAreForgotten) {
  const uint32_t list[] = {0};
  for (uint64_t lease = 1; lease <= 300; ++lease) device_pages_.MarkResident(lease, 64);
  EXPECT_EQ(CopyMissingPages(Pages(300, list), 64), 0);
  EXPECT_EQ(CopyMissingPages(Pages(1, list), 64), 1);
}

TEST_F(DevicePagesTest, RefusesPagesOfAnotherPool) {
  const uint32_t list[] = {6};
  EXPECT_EQ(device_pages_.CopyMissingPages(Pages(7, list), 1, nullptr, *stream_).code(), absl::StatusCode::kInternal);
}

TEST_F(DevicePagesTest, ViewsALayer) {
  const cuda::KvPagesView view = device_pages_.View(1, nullptr);
  EXPECT_EQ(view.layer_offset, kv::kPageTokens * 8 * 2);
  EXPECT_EQ(view.page_bytes, 2 * kv::kPageTokens * 8 * 2);
  EXPECT_EQ(view.kv_dim, 8);
}

}  // namespace
}  // namespace moestro::engine
