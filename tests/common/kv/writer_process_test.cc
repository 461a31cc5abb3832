// Owner and writers in different processes: either may die at any time, and the pages are recovered.
#include <signal.h>

#include <algorithm>

#include "common/platform/process_memory.h"
#include "tests/common/kv/kv_fixture.h"
#include "tests/common/platform/child_process.h"

namespace moestro::kv {
namespace {

using testing::ChildProcess;
using testing::ExpectPages;
using testing::kEpoch;
using testing::kFingerprint;
using testing::KvPoolTest;
using testing::SmallGeometry;

// Commands for a writer process.
enum WriterCommand : int64_t { kStop, kTellRevoked, kWriteAndPublish };

class WriterProcessTest : public KvPoolTest {
 protected:
  // A process that opens the pool, acquires `lease`, reports the status code and then obeys commands.
  std::unique_ptr<ChildProcess> StartWriter(const KvLease& lease) {
    return std::make_unique<ChildProcess>([this, lease](const ChildProcess::Parent& parent) {
      absl::StatusOr<std::unique_ptr<LeaseWriter>> writer = Acquire(Open(), lease);
      parent.Send(static_cast<int64_t>(writer.status().code()));
      if (!writer.ok()) return 1;
      for (;;) {
        switch (parent.Receive()) {
          case kTellRevoked:
            parent.Send((*writer)->revoked());
            break;
          case kWriteAndPublish:
            *(*writer)->pages().Token(1, 4) = 0x4242;
            (*writer)->Publish(5);
            parent.Send(0);
            break;
          default:
            return 0;
        }
      }
    });
  }

  static int64_t Ask(const ChildProcess& writer, WriterCommand command) {
    writer.Send(command);
    return writer.Receive();
  }
};

TEST_F(WriterProcessTest, WrittenInOneProcessReadInAnother) {
  const auto pool = MakePool(6, 3);
  const KvLease lease = pool->Reserve({.capacity = 5}).value();
  const auto writer = StartWriter(lease);
  ASSERT_EQ(writer->Receive(), 0);
  EXPECT_EQ(pool->ValidTokens(lease), 0);
  EXPECT_EQ(Ask(*writer, kWriteAndPublish), 0);
  EXPECT_EQ(pool->ValidTokens(lease), 5);
  EXPECT_EQ(*pool->Pages(lease).Token(1, 4), 0x4242);
}

TEST_F(WriterProcessTest, LivingWriterKeepsPagesUntilItExits) {
  const auto pool = MakePool(6, 3);
  const KvLease lease = pool->Reserve({.capacity = 5}).value();
  const auto writer = StartWriter(lease);
  ASSERT_EQ(writer->Receive(), 0);
  EXPECT_EQ(Ask(*writer, kTellRevoked), 0);
  pool->Release(lease);
  EXPECT_EQ(Ask(*writer, kTellRevoked), 1);
  pool->Sweep();
  ExpectPages(*pool, 0, 2);
  EXPECT_EQ(pool->Reserve({.capacity = 24}).status().code(), absl::StatusCode::kResourceExhausted);
  writer->Send(kStop);
  EXPECT_EQ(writer->Wait(), 0);
  ExpectPages(*pool, 0, 2);
  pool->Sweep();
  ExpectPages(*pool, 0, 0);
}

TEST_F(WriterProcessTest, StoppedWriterIsNotADeadOne) {
  const auto pool = MakePool(6, 3);
  const KvLease lease = pool->Reserve({.capacity = 5}).value();
  const auto writer = StartWriter(lease);
  ASSERT_EQ(writer->Receive(), 0);
  kill(writer->pid(), SIGSTOP);
  pool->Release(lease);
  pool->Sweep();
  ExpectPages(*pool, 0, 2);
  writer->Kill();
  pool->Sweep();
  ExpectPages(*pool, 0, 0);
}

TEST_F(WriterProcessTest, KilledWriterGivesPagesBackEveryTime) {
  const auto pool = MakePool(6, 1);
  for (int round = 0; round < 20; ++round) {
    const KvLease lease = pool->Reserve({.capacity = 24}).value();
    const auto writer = StartWriter(lease);
    ASSERT_EQ(writer->Receive(), 0);
    const bool release_first = round % 2 == 0;
    if (release_first) pool->Release(lease);
    ExpectPages(*pool, release_first ? 0 : 6, release_first ? 6 : 0);
    writer->Kill();
    if (!release_first) pool->Release(lease);
    pool->Sweep();
    ExpectPages(*pool, 0, 0);
  }
}

TEST_F(WriterProcessTest, KilledWriterCanBeReplaced) {
  const auto pool = MakePool(6, 3);
  const KvLease lease = pool->Reserve({.capacity = 5}).value();
  const auto first = StartWriter(lease);
  ASSERT_EQ(first->Receive(), 0);
  ASSERT_EQ(Ask(*first, kWriteAndPublish), 0);
  const auto second = StartWriter(lease);
  EXPECT_EQ(second->Receive(), static_cast<int64_t>(absl::StatusCode::kUnavailable));
  first->Kill();
  const auto third = StartWriter(lease);
  EXPECT_EQ(third->Receive(), 0);
  EXPECT_EQ(pool->ValidTokens(lease), 5) << "what was published before stays";
}

// Both die or unlock in any order: complete pages stay in the cache, the rest is freed.
TEST_F(WriterProcessTest, KilledWriterOfALeaseWithSharedPages) {
  const std::vector<int32_t> tokens(24, 7);
  for (const bool release_first : {false, true}) {
    const auto pool = MakePool(8, 3);
    const KvLease prefix = pool->Reserve({.tokens = std::span(tokens).first(9), .capacity = 9}).value();
    pool->PublishValidTokens(prefix, 4);
    pool->Cache(prefix, tokens);
    KvLease lease = pool->Reserve({.tokens = std::span(tokens).first(9), .capacity = 9}).value();
    ASSERT_EQ(lease.cached_tokens, 4);
    ASSERT_EQ(lease.pages.front(), prefix.pages.front());
    const auto writer = StartWriter(lease);
    ASSERT_EQ(writer->Receive(), 0);
    ASSERT_EQ(Ask(*writer, kWriteAndPublish), 0);
    EXPECT_EQ(pool->ValidTokens(lease), 5);
    ASSERT_TRUE(pool->Grow(lease, 13).ok()) << "while another process writes";
    pool->Cache(lease, tokens);
    ExpectPages(*pool, 6, 0);
    if (release_first) {
      pool->Release(lease);
      ExpectPages(*pool, 3, 3);
      pool->Release(prefix);
      ExpectPages(*pool, 1, 3);
      pool->Sweep();
      ExpectPages(*pool, 1, 3);
      writer->Kill();
      pool->Sweep();
    } else {
      writer->Kill();
      pool->Release(prefix);
      ExpectPages(*pool, 4, 0);
      pool->Release(lease);
    }
    ExpectPages(*pool, 0, 0, 1);
    const KvLease next = pool->Reserve({.tokens = tokens, .capacity = 32}).value();
    EXPECT_EQ(next.cached_tokens, 4);
    EXPECT_EQ(next.pages.front(), prefix.pages.front());
  }
}

TEST_F(WriterProcessTest, WrittenInOneProcessSharedWithAnother) {
  const auto pool = MakePool(8, 3);
  const std::vector<int32_t> tokens(9, 7);
  const KvLease lease = pool->Reserve({.tokens = tokens, .capacity = 9}).value();
  const auto writer = StartWriter(lease);
  ASSERT_EQ(writer->Receive(), 0);
  ASSERT_EQ(Ask(*writer, kWriteAndPublish), 0);
  *pool->Pages(lease).Token(2, 3) = 0x1234;
  pool->Cache(lease, tokens);
  const KvLease reader = pool->Reserve({.tokens = tokens, .capacity = 9}).value();
  EXPECT_EQ(reader.cached_tokens, 4);
  const ChildProcess other([&](const ChildProcess::Parent& parent) {
    const auto held = Acquire(Open(), reader).value();
    parent.Send(held->valid_tokens());
    parent.Send(*held->pages().Token(2, 3));
    return 0;
  });
  EXPECT_EQ(other.Receive(), 4);
  EXPECT_EQ(other.Receive(), 0x1234);
}

TEST_F(WriterProcessTest, OldLeaseIsRefusedAfterTheSlotIsReused) {
  const auto pool = MakePool(6, 1);
  const KvLease old = pool->Reserve({.capacity = 5}).value();
  pool->Release(old);
  const auto nobody = StartWriter(old);
  EXPECT_EQ(nobody->Receive(), static_cast<int64_t>(absl::StatusCode::kAborted));
  const KvLease lease = pool->Reserve({.capacity = 5}).value();
  ASSERT_EQ(lease.slot, old.slot);
  const auto late = StartWriter(old);
  EXPECT_EQ(late->Receive(), static_cast<int64_t>(absl::StatusCode::kAborted));
  const auto writer = StartWriter(lease);
  EXPECT_EQ(writer->Receive(), 0);
}

TEST_F(WriterProcessTest, PoolOfAKilledOwnerIsNotOpenedAndCanBeRemoved) {
  ChildProcess owner([&](const ChildProcess::Parent& parent) {
    const auto pool = MakePool(6, 3);
    parent.Send(pool->geometry().page_count);
    return parent.Sleep();
  });
  ASSERT_EQ(owner.Receive(), 6);
  auto mapping = KvPoolMapping::Open(name_, {kFingerprint});
  ASSERT_TRUE(mapping.ok());
  EXPECT_FALSE(SharedMemory::UnlinkIfUnused(name_).value());
  owner.Kill();
  ASSERT_EQ(SharedMemory::List(name_)->size(), 1u);
  EXPECT_FALSE(SharedMemory::List(name_)->front().owner_alive);
  EXPECT_EQ(KvPoolMapping::Open(name_, {kFingerprint}).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(KvPool::Create(name_, kEpoch + 1, {kFingerprint}, SmallGeometry(1, 1)).status().code(),
            absl::StatusCode::kAlreadyExists);
  mapping = absl::UnknownError("dropped");
  EXPECT_TRUE(SharedMemory::UnlinkIfUnused(name_).value());
}

TEST_F(WriterProcessTest, WriterOfAKilledOwnerIsRevokedAndItsPagesAreFreed) {
  ChildProcess owner([&](const ChildProcess::Parent& parent) {
    const auto pool = MakePool(6, 3);
    const KvLease lease = pool->Reserve({.capacity = 5}).value();
    parent.Send(lease.slot);
    parent.Send(static_cast<int64_t>(lease.id));
    return parent.Sleep();
  });
  KvLease lease;
  lease.slot = static_cast<uint32_t>(owner.Receive());
  lease.id = static_cast<uint64_t>(owner.Receive());
  lease.pages = {0, 1};
  const auto writer = Acquire(Open(), lease).value();
  *writer->pages().Token(0, 4) = 7;
  EXPECT_FALSE(writer->revoked());
  owner.Kill();
  EXPECT_TRUE(writer->revoked());
  ASSERT_TRUE(KvPoolMapping::RemoveOrphan(name_).ok());
  EXPECT_TRUE(SharedMemory::List(name_)->empty());
  EXPECT_EQ(*writer->pages().Token(0, 4), 0) << "its memory is the system's again";
  *writer->pages().Token(0, 4) = 7;
  EXPECT_TRUE(KvPoolMapping::RemoveOrphan(name_).ok()) << "nothing to remove is fine";
}

TEST_F(WriterProcessTest, ThePagesOfAKilledOwnerArePoisonedIfAskedFor) {
  ChildProcess owner([&](const ChildProcess::Parent& parent) {
    const auto pool = MakePool(6, 3);
    parent.Send(1);
    return parent.Sleep();
  });
  ASSERT_EQ(owner.Receive(), 1);
  const auto mapping = Open();
  owner.Kill();
  ASSERT_TRUE(KvPoolMapping::RemoveOrphan(name_, /*poison=*/true).ok());
  EXPECT_TRUE(SharedMemory::List(name_)->empty());
  const kv::KvGeometry& geometry = mapping->geometry();
  const auto* numbers = reinterpret_cast<const uint16_t*>(mapping->pages_base());
  EXPECT_TRUE(std::all_of(numbers, numbers + geometry.page_count * geometry.page_bytes() / 2,
                          [](uint16_t x) { return x == kPoison; }));
}

// A late layer of a writer takes memory again, but only for what it writes: the rest stays the system's.
TEST_F(WriterProcessTest, LateWriterOfARemovedPoolTakesOnlyWhatItWrites) {
  auto pool = MakePool(10000, 1);
  const KvLease lease = pool->Reserve({.capacity = 4 * 10000}).value();
  const auto writer = Acquire(Open(), lease).value();
  pool = nullptr;
  EXPECT_TRUE(writer->revoked());
  EXPECT_EQ(*writer->pages().Token(0, 20000), 0) << "its memory is the system's again";
  const auto resident = [&] { return FindMapping(0, name_)->rss_bytes; };
  const int64_t before = resident();
  for (int64_t token = 20000; token < 20016; ++token) *writer->pages().Token(0, token) = 7;
  EXPECT_LE(resident() - before, 2 * 4096);
  EXPECT_LT(resident(), 1 << 20);
}

}  // namespace
}  // namespace moestro::kv
