// How fast a checkpoint becomes a weight segment, next to what this machine can copy and read.
//   pack_bench CHECKPOINT_DIR [THREADS] [--cold]     --cold drops the files from the page cache first
// Prints one JSON object. `ratio` is the packing rate over the lower of the two ceilings of the same run: copying from
// memory to memory with as many threads, and reading the files into one buffer a thread. `cpu_ratio` is the same for
// bytes a second of processor time: it means something on a busy machine too, unless the disk is the limit. Reserving
// the memory comes before packing and is told by itself.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <memory>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "common/base/status.h"
#include "common/checkpoint/config.h"
#include "common/platform/worker_pool.h"
#include "services/weight_store/pack/packer.h"
#include "tests/support/aligned_memory.h"

namespace moestro::store {
namespace {

struct Cost {
  double seconds = 0;
  double cpu_seconds = 0;  // of all threads
};

struct Rate {  // bytes a second
  double wall = 0;
  double cpu = 0;
};

Rate RateOf(int64_t bytes, const Cost& cost) {
  return {static_cast<double>(bytes) / cost.seconds, static_cast<double>(bytes) / cost.cpu_seconds};
}

Rate Lower(const Rate& a, const Rate& b) { return {std::min(a.wall, b.wall), std::min(a.cpu, b.cpu)}; }

Cost Measure(absl::FunctionRef<void()> work) {
  const auto begin = std::chrono::steady_clock::now();
  const std::clock_t cpu_begin = std::clock();
  work();
  return {std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(),
          static_cast<double>(std::clock() - cpu_begin) / CLOCKS_PER_SEC};
}

// Both sides are larger than any cache. The best of five.
Rate CopyRate(WorkerPool& pool) {
  constexpr int64_t kBytes = int64_t{256} << 20, kSlice = int64_t{1} << 20;
  const AlignedMemory from(kBytes), to(kBytes);
  Rate best;
  for (int repeat = 0; repeat < 5; ++repeat) {
    const Rate rate =
        RateOf(kBytes, Measure([&] {
                 pool.Run(kBytes / kSlice, [&](int64_t i, int) {
                   std::memcpy(to.data() + i * kSlice, from.data() + i * kSlice, static_cast<size_t>(kSlice));
                 });
               }));
    best = {std::max(best.wall, rate.wall), std::max(best.cpu, rate.cpu)};
  }
  return best;
}

void DropFromCache(const checkpoint::Checkpoint& checkpoint) {
  for (const checkpoint::TensorFile& shard : checkpoint.shards()) posix_fadvise(shard.fd(), 0, 0, POSIX_FADV_DONTNEED);
}

// A mebibyte at a time.
Rate ReadRate(const checkpoint::Checkpoint& checkpoint, WorkerPool& pool) {
  constexpr int64_t kSlice = int64_t{1} << 20;
  std::vector<std::vector<uint8_t>> buffers(static_cast<size_t>(pool.threads()), std::vector<uint8_t>(kSlice));
  int64_t total = 0;
  const Cost cost = Measure([&] {
    for (const checkpoint::TensorFile& shard : checkpoint.shards()) {
      posix_fadvise(shard.fd(), 0, 0, POSIX_FADV_SEQUENTIAL);
      total += shard.size();
      pool.Run(shard.size() / kSlice, [&](int64_t i, int worker) {
        if (!shard.ReadAt(i * kSlice, buffers[static_cast<size_t>(worker)].data(), kSlice).ok()) std::abort();
      });
    }
  });
  return RateOf(total, cost);
}

absl::Status Bench(const std::string& dir, int threads, bool is_cold) {
  MOE_ASSIGN_OR_RETURN(const checkpoint::Checkpoint checkpoint, checkpoint::Checkpoint::Open(dir));
  const checkpoint::CheckpointDocuments& documents = checkpoint.documents();
  MOE_ASSIGN_OR_RETURN(const weights::ModelSpec spec,
                       checkpoint::ParseModelSpec(documents.config_json, documents.tokenizer_json));
  MOE_ASSIGN_OR_RETURN(const auto inventory, checkpoint::CheckInventory(checkpoint, spec));
  MOE_ASSIGN_OR_RETURN(const checkpoint::Plan plan, checkpoint::MakePlan(inventory, spec));
  const std::string name = "moestro.bench" + std::to_string(getpid()) + ".weights";
  std::unique_ptr<weights::SegmentWriter> writer;
  absl::Status status;
  const Cost reserve_cost = Measure([&] {
    auto created =
        weights::SegmentWriter::Create(name, 1, checkpoint.fingerprint(), spec, plan.tensors, {.threads = threads});
    status = created.status();
    if (created.ok()) writer = std::move(*created);
  });
  MOE_RETURN_IF_ERROR(status);
  SharedMemory::Unlink(name).IgnoreError();
  if (is_cold) DropFromCache(checkpoint);
  const Cost cost = Measure([&] { status = PackCheckpoint(checkpoint, plan, *writer, {.threads = threads}); });
  MOE_RETURN_IF_ERROR(status);
  WorkerPool pool(threads);
  const Rate copy = CopyRate(pool);
  if (is_cold) DropFromCache(checkpoint);
  const Rate read = ReadRate(checkpoint, pool);
  const Rate ceiling = Lower(copy, read);
  const Rate rate = RateOf(writer->header().data_bytes, cost);
  std::printf(
      "{\"threads\": %d, \"cold\": %s, \"reserve_seconds\": %.2f, \"reserve_cpu_seconds\": %.2f, \"seconds\": %.2f, "
      "\"cpu_seconds\": %.2f, \"gb_per_s\": %.2f, \"copy_gb_per_s\": %.2f, \"read_gb_per_s\": %.2f, \"ratio\": %.2f, "
      "\"cpu_ratio\": %.2f}\n",
      threads, is_cold ? "true" : "false", reserve_cost.seconds, reserve_cost.cpu_seconds, cost.seconds,
      cost.cpu_seconds, rate.wall / 1e9, copy.wall / 1e9, read.wall / 1e9, rate.wall / ceiling.wall,
      rate.cpu / ceiling.cpu);
  return absl::OkStatus();
}

}  // namespace
}  // namespace moestro::store

int main(int argc, char** argv) {
  const bool is_cold = argc > 2 && std::strcmp(argv[argc - 1], "--cold") == 0;
  if (is_cold) --argc;
  const int threads = argc == 3 ? std::atoi(argv[2]) : 1;
  if (argc < 2 || argc > 3 || threads < 1) {
    std::fprintf(stderr, "usage: pack_bench CHECKPOINT_DIR [THREADS] [--cold]\n");
    return 2;
  }
  const absl::Status status = moestro::store::Bench(argv[1], threads, is_cold);
  if (status.ok()) return 0;
  std::fprintf(stderr, "pack_bench: %s\n", std::string(status.message()).c_str());
  return 1;
}
