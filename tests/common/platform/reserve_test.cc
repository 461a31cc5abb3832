#include "common/platform/reserve.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <numaif.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

#include "common/base/check.h"

namespace moestro {
namespace {

constexpr int64_t kPage = 4096;

// A file in memory and a shared mapping of it.
class MappedFile {
 public:
  MappedFile(int64_t file_bytes, int64_t mapped_bytes) : size_(mapped_bytes) {
    fd_ = memfd_create("reserve_test", MFD_CLOEXEC);
    MOE_CHECK(fd_ >= 0 && ftruncate(fd_, file_bytes) == 0);
    void* address = mmap(nullptr, static_cast<size_t>(size_), PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0);
    MOE_CHECK(address != MAP_FAILED);
    data_ = static_cast<uint8_t*>(address);
  }
  explicit MappedFile(int64_t bytes) : MappedFile(bytes, bytes) {}
  ~MappedFile() {
    munmap(data_, static_cast<size_t>(size_));
    close(fd_);
  }
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  absl::Status Reserve(const ReserveOptions& options = {}) { return ReserveMemory(fd_, data_, {0, size_}, options); }
  uint8_t* data() const { return data_; }
  int64_t PagesInMemory() const {
    std::vector<unsigned char> pages(static_cast<size_t>((size_ + kPage - 1) / kPage));
    MOE_CHECK(mincore(data_, static_cast<size_t>(size_), pages.data()) == 0);
    return std::ranges::count(pages, 1);
  }

 private:
  int fd_;
  int64_t size_;
  uint8_t* data_;
};

TEST(ReserveMemory, BacksEveryPage) {
  for (const int threads : {0, 1, 3}) {
    MappedFile file((40 << 20) + 100);
    EXPECT_EQ(file.PagesInMemory(), 0);
    const absl::Status status = file.Reserve({.threads = threads});
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_EQ(file.PagesInMemory(), (40 << 20) / kPage + 1);
    EXPECT_TRUE(std::all_of(file.data(), file.data() + (40 << 20) + 100, [](uint8_t byte) { return byte == 0; }));
  }
}

// This machine may have only one node: then all domains are placed there.
TEST(ReserveMemory, StretchesComeFromTheirNodesAndTheCallersPolicyStays) {
  const int node = ReadNumaNodes().back().id;
  const NumaDomain domain{AllowedCpus(), {node}};
  MappedFile file(10 * kPage);
  const ReserveOptions options{
      .threads = 1,
      .stretches = {
          {100, nullptr}, {kPage, &domain}, {3 * kPage + 1, &domain}, {3 * kPage + 2, nullptr}, {10 * kPage, &domain}}};
  const absl::Status status = file.Reserve(options);
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(file.PagesInMemory(), 10);
  int value = -1;
  if (get_mempolicy(&value, nullptr, 0, nullptr, 0) != 0) GTEST_SKIP() << "memory policies are forbidden here";
  EXPECT_EQ(value, MPOL_DEFAULT);
  for (const int64_t page : {2, 3, 9}) {
    ASSERT_EQ(get_mempolicy(&value, nullptr, 0, file.data() + page * kPage, MPOL_F_NODE | MPOL_F_ADDR), 0);
    EXPECT_EQ(value, node) << page;
  }
}

TEST(ReserveMemory, NoRoomIsAnErrorAndNotASignal) {
  MappedFile file(20 << 20, 60 << 20);
  for (const int threads : {1, 2}) {
    EXPECT_EQ(file.Reserve({.threads = threads}).code(), absl::StatusCode::kResourceExhausted);
  }
}

TEST(ReserveMemory, WatchCountsUpAndCanStop) {
  std::vector<int64_t> told;
  const auto watch = [&](int64_t bytes) {
    told.push_back(bytes);
    return told.size() < 2 ? absl::OkStatus() : absl::CancelledError("enough");
  };
  MappedFile file(100 << 20);
  EXPECT_EQ(file.Reserve({.threads = 1, .watch = watch}).code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(told, (std::vector<int64_t>{16 << 20, 32 << 20}));
  EXPECT_EQ(file.PagesInMemory(), (32 << 20) / kPage);
}

}  // namespace
}  // namespace moestro
