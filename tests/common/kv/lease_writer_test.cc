#include "common/kv/lease_writer.h"

#include <gmock/gmock.h>

#include <cstring>
#include <functional>
#include <random>
#include <thread>

#include "tests/common/kv/kv_fixture.h"

namespace moestro::kv {
namespace {

using ::testing::AllOf;
using testing::ExpectPages;
using ::testing::HasSubstr;
using testing::kEpoch;
using testing::kFingerprint;
using testing::KvPoolTest;
using testing::SmallGeometry;

TEST_F(KvPoolTest, WriterAndOwnerSeeTheSamePages) {
  const auto pool = MakePool(6, 3);
  pool->Reserve({.capacity = 4}).IgnoreError();
  const KvLease lease = pool->Reserve({.capacity = 7}).value();
  const auto mapping = Open();
  EXPECT_EQ(mapping->epoch(), kEpoch);
  EXPECT_EQ(mapping->name(), name_.str());
  EXPECT_EQ(mapping->geometry().page_count, 6);
  const auto writer = Acquire(mapping, lease).value();
  EXPECT_EQ(writer->pages().capacity(), 8);
  *writer->pages().Token(2, 6) = 0x3f80;
  writer->Publish(7);
  EXPECT_EQ(writer->valid_tokens(), 7);
  EXPECT_EQ(pool->ValidTokens(lease), 7);
  EXPECT_EQ(*pool->Pages(lease).Token(2, 6), 0x3f80);
  EXPECT_FALSE(writer->revoked());
}

TEST_F(KvPoolTest, AcquireChecksItsArguments) {
  const auto pool = MakePool(6, 3);
  const KvLease lease = pool->Reserve({.capacity = 5}).value();
  const auto mapping = Open();
  const auto code = [&](uint32_t slot, uint64_t id, std::vector<uint32_t> pages) {
    return LeaseWriter::Acquire(mapping, slot, id, std::move(pages)).status().code();
  };
  EXPECT_EQ(code(3, lease.id, {0, 1}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(~0u, lease.id, {0, 1}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(lease.slot, lease.id, {0, 6}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(lease.slot, lease.id, {~0u}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(lease.slot, lease.id, {1, 0, 1}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(lease.slot, lease.id, {}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(lease.slot, lease.id, std::vector<uint32_t>(7)), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(lease.slot, lease.id + 1, {0, 1}), absl::StatusCode::kAborted);
  EXPECT_EQ(code(2, 0, {0, 1}), absl::StatusCode::kAborted) << "a free slot is nobody's lease";
  EXPECT_EQ(code(lease.slot, lease.id, {0, 1}), absl::StatusCode::kOk) << "a refused caller leaves no lock behind";
}

TEST_F(KvPoolTest, LeasesAreRenewedInLineAndWhileTheyAreWritten) {
  const auto pool = MakePool(6, 3);
  const KvLease lease = pool->Reserve({.capacity = 5}).value();
  const auto mapping = Open();
  const uint32_t before = pool->Renewals(lease);
  EXPECT_TRUE(mapping->Renew(lease.slot, lease.id).ok());
  EXPECT_EQ(pool->Renewals(lease), before + 1);
  Acquire(mapping, lease).value()->Renew();
  EXPECT_EQ(pool->Renewals(lease), before + 2);
  EXPECT_EQ(mapping->Renew(3, lease.id).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(mapping->Renew(lease.slot, lease.id + 1).code(), absl::StatusCode::kAborted);
  mapping->slot(lease.slot)->revoked = 1;
  EXPECT_EQ(mapping->Renew(lease.slot, lease.id).code(), absl::StatusCode::kAborted) << "who is in line need not wait";
  EXPECT_EQ(pool->Renewals(lease), before + 2);
  pool->Release(lease);
  EXPECT_EQ(pool->Renewals(lease), 0u);
}

TEST_F(KvPoolTest, OneWriterAtATime) {
  const auto pool = MakePool(6, 3);
  const KvLease lease = pool->Reserve({.capacity = 5}).value();
  const auto mapping = Open();
  auto writer = Acquire(mapping, lease);
  EXPECT_EQ(Acquire(mapping, lease).status().code(), absl::StatusCode::kUnavailable);
  writer = absl::UnknownError("dropped");
  EXPECT_TRUE(Acquire(mapping, lease).ok());
}

TEST_F(KvPoolTest, ReleasedLeaseDrainsUntilTheWriterStops) {
  const auto pool = MakePool(6, 3);
  const KvLease lease = pool->Reserve({.capacity = 5}).value();
  auto writer = Acquire(Open(), lease);
  pool->Release(lease);
  pool->Release(lease);
  EXPECT_TRUE((*writer)->revoked());
  ExpectPages(*pool, 0, 2);
  pool->Sweep();
  ExpectPages(*pool, 0, 2);
  EXPECT_EQ(pool->Reserve({.capacity = 17}).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(pool->ValidTokens(lease), 0);
  writer = absl::UnknownError("dropped");
  const KvLease next = pool->Reserve({.capacity = 24}).value();  // sweeps
  ExpectPages(*pool, 6, 0);
  EXPECT_EQ(Acquire(Open(), lease).status().code(), absl::StatusCode::kAborted);
  EXPECT_TRUE(Acquire(Open(), next).ok());
}

TEST_F(KvPoolTest, RevokedLeaseIsNotAcquired) {
  const auto pool = MakePool(6, 3);
  const KvLease lease = pool->Reserve({.capacity = 5}).value();
  const auto mapping = Open();
  mapping->slot(lease.slot)->revoked = 1;
  EXPECT_EQ(Acquire(mapping, lease).status().code(), absl::StatusCode::kAborted);
}

TEST_F(KvPoolTest, ThreadThatEndsWithTheLockCountsAsDead) {
  const auto pool = MakePool(6, 3);
  const KvLease lease = pool->Reserve({.capacity = 5}).value();
  const auto mapping = Open();
  std::thread([&] { pthread_mutex_lock(&mapping->slot(lease.slot)->writer); }).join();
  EXPECT_TRUE(Acquire(mapping, lease).ok());
  EXPECT_TRUE(Acquire(mapping, lease).ok());
}

TEST_F(KvPoolTest, PoolThatIsGoneRevokesItsWriters) {
  auto pool = MakePool(6, 3);
  const KvLease lease = pool->Reserve({.capacity = 5}).value();
  const auto mapping = Open();
  const auto writer = Acquire(mapping, lease).value();
  pool.reset();
  EXPECT_TRUE(writer->revoked());
  *writer->pages().Token(0, 0) = 1;  // still mapped
  EXPECT_EQ(KvPoolMapping::Open(name_, {kFingerprint}).status().code(), absl::StatusCode::kNotFound);
}

TEST_F(KvPoolTest, OtherWeightsAreRefused) {
  const auto pool = MakePool(6, 3);
  EXPECT_EQ(KvPoolMapping::Open(name_, {"other"}).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(KvPoolMapping::Open(name_, {""}).status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(KvPoolTest, OtherFlagsAreRefusedAndBothAreNamed) {
  const auto pool = KvPool::Create(name_, kEpoch, {kFingerprint, "--rounding up"}, SmallGeometry(6, 3)).value();
  EXPECT_TRUE(KvPoolMapping::Open(name_, {kFingerprint, "--rounding up"}).ok());
  for (const std::string flags : {"--rounding down", "--rounding u", ""}) {
    const absl::Status status = KvPoolMapping::Open(name_, {kFingerprint, flags}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("decode, runs with --rounding up, prefill with " + flags), HasSubstr("start both")));
  }
}

TEST_F(KvPoolTest, CorruptHeadersAreRefused) {
  using Change = std::function<void(PoolHeader&)>;
  const std::pair<Change, absl::StatusCode> cases[] = {
      {[](PoolHeader& h) { h.magic = 0; }, absl::StatusCode::kNotFound},
      {[](PoolHeader& h) { h.magic ^= 1; }, absl::StatusCode::kDataLoss},
      {[](PoolHeader& h) { h.layout_version += 1; }, absl::StatusCode::kFailedPrecondition},
      {[](PoolHeader& h) { h.fingerprint[0] ^= 1; }, absl::StatusCode::kFailedPrecondition},
      {[](PoolHeader& h) { std::memset(h.fingerprint, 'x', 40); }, absl::StatusCode::kFailedPrecondition},
      {[](PoolHeader& h) { std::memset(h.flags, 'x', 64); }, absl::StatusCode::kFailedPrecondition},
      {[](PoolHeader& h) { h.geometry.page_count += 1; }, absl::StatusCode::kDataLoss},
      {[](PoolHeader& h) { h.geometry.page_count = int64_t{1} << 62; }, absl::StatusCode::kDataLoss},
      {[](PoolHeader& h) { h.geometry.lease_slots = int64_t{1} << 57; }, absl::StatusCode::kDataLoss},
      {[](PoolHeader& h) { h.geometry.lease_slots = -h.geometry.lease_slots; }, absl::StatusCode::kDataLoss},
      {[](PoolHeader& h) { h.geometry.num_layers = 0; }, absl::StatusCode::kDataLoss},
      {[](PoolHeader& h) { h.geometry.kv_dim *= 2; }, absl::StatusCode::kDataLoss},
      {[](PoolHeader& h) { h.geometry.page_tokens = -4; }, absl::StatusCode::kDataLoss},
      {[](PoolHeader& h) { h.slots_offset = 1 << 30; }, absl::StatusCode::kDataLoss},
      {[](PoolHeader& h) { h.pages_offset = -4096; }, absl::StatusCode::kDataLoss},
      {[](PoolHeader& h) { h.total_bytes += 4096; }, absl::StatusCode::kDataLoss},
  };
  const auto pool = MakePool(6, 3);
  const SharedMemory memory = SharedMemory::OpenWritable(name_).value();
  auto& header = *reinterpret_cast<PoolHeader*>(memory.data());
  const PoolHeader good = header;
  for (size_t i = 0; i < std::size(cases); ++i) {
    cases[i].first(header);
    EXPECT_EQ(KvPoolMapping::Open(name_, {kFingerprint}).status().code(), cases[i].second) << "case " << i;
    header = good;
  }
  EXPECT_TRUE(KvPoolMapping::Open(name_, {kFingerprint}).ok());
}

TEST_F(KvPoolTest, GarbageIsRefused) {
  const SharedMemory memory = SharedMemory::Create(name_, 8192).value();
  auto& header = *reinterpret_cast<PoolHeader*>(memory.data());
  std::mt19937_64 random(1);
  for (int round = 0; round < 500; ++round) {
    for (int64_t i = 0; i < 8192; i += 8) {
      const uint64_t word = random() >> (random() % 64);
      std::memcpy(memory.data() + i, &word, 8);
    }
    header.magic |= 2;  // not 0, and not the right one
    EXPECT_EQ(KvPoolMapping::Open(name_, {kFingerprint}).status().code(), absl::StatusCode::kDataLoss);
    header.magic = kKvPoolMagic;
    header.layout_version = kKvPoolLayoutVersion;
    EXPECT_EQ(KvPoolMapping::Open(name_, {kFingerprint}).status().code(), absl::StatusCode::kDataLoss);
  }
}

TEST_F(KvPoolTest, ObjectSmallerThanAHeaderIsRefused) {
  const SharedMemory memory = SharedMemory::Create(name_, sizeof(PoolHeader) - 1).value();
  EXPECT_EQ(KvPoolMapping::Open(name_, {kFingerprint}).status().code(), absl::StatusCode::kDataLoss);
}

TEST_F(KvPoolTest, PoolWithoutAnOwnerIsNotOpened) {
  EXPECT_EQ(KvPoolMapping::Open(name_, {kFingerprint}).status().code(), absl::StatusCode::kNotFound);
  { const SharedMemory memory = SharedMemory::Create(name_, 8192).value(); }
  EXPECT_EQ(KvPoolMapping::Open(name_, {kFingerprint}).status().code(), absl::StatusCode::kNotFound);
}

TEST_F(KvPoolTest, PoolOfALivingOwnerIsNotRemoved) {
  const auto pool = MakePool(6, 3);
  const KvLease lease = pool->Reserve({.capacity = 5}).value();
  *pool->Pages(lease).Token(0, 0) = 0x1234;
  EXPECT_EQ(KvPoolMapping::RemoveOrphan(name_).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(SharedMemory::List(name_)->size(), 1u);
  EXPECT_EQ(*pool->Pages(lease).Token(0, 0), 0x1234);
}

}  // namespace
}  // namespace moestro::kv
