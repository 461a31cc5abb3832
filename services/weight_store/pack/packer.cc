#include "services/weight_store/pack/packer.h"

#include <fcntl.h>

#include <algorithm>
#include <atomic>
#include <limits>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "common/base/check.h"
#include "common/base/exceptions.h"
#include "common/base/mutex.h"
#include "common/base/status.h"
#include "common/platform/worker_pool.h"
#include "common/weights/checksum.h"
#include "common/weights/tensor_size.h"
#include "services/weight_store/pack/jobs.h"
#include "services/weight_store/pack/slice_filler.h"

namespace moestro::store {
namespace {

// Jobs for which the disk reads ahead of the threads: up to 32 MiB. Not tuned for any drive.
constexpr int64_t kReadAheadJobs = 8;

// The state that all threads share.
class Packer {
 public:
  Packer(const checkpoint::Checkpoint& checkpoint, const checkpoint::Plan& plan, weights::SegmentWriter& writer,
         const PackOptions& options)
      : checkpoint_(checkpoint), plan_(plan), writer_(writer), options_(options), jobs_(MakeJobs(plan)) {
    MOE_CHECK(writer.directory().size() == plan.tensors.size());
    slice_hashes_.resize(plan.tensors.size());
    slices_left_ = std::vector<std::atomic<int64_t>>(plan.tensors.size());
    for (size_t i = 0; i < plan.tensors.size(); ++i) {
      const int64_t slices = weights::ChecksumSlices(plan.tensors[i].rows);
      slice_hashes_[i].resize(static_cast<size_t>(slices));
      slices_left_[i] = slices;
    }
  }

  absl::Status Run() {
    for (const checkpoint::TensorFile& shard : checkpoint_.shards()) {
      posix_fadvise(shard.fd(), 0, 0, POSIX_FADV_SEQUENTIAL);
    }
    for (int64_t job = 0; job < kReadAheadJobs; ++job) ReadAhead(job);
    WorkerPool pool(std::max(1, options_.threads));
    pool.Run(pool.threads(), [&](int64_t, int) {
      absl::Status status = CatchExceptions([&] {
        Work();
        return absl::OkStatus();
      });
      if (!status.ok()) Stop(-1, std::move(status));
    });
    MOE_RETURN_IF_ERROR(error_);
    MOE_RETURN_IF_ERROR(writer_.Finish());
    if (options_.progress) options_.progress(writer_.header().data_bytes, writer_.header().data_bytes);
    return absl::OkStatus();
  }

 private:
  // Takes jobs in order until none is left or one has failed.
  void Work() {
    SliceFiller filler(checkpoint_, plan_);
    const bool is_caller = std::this_thread::get_id() == caller_;
    while (!stop_.load(std::memory_order_relaxed)) {
      const int64_t job = next_job_.fetch_add(1, std::memory_order_relaxed);
      if (job >= static_cast<int64_t>(jobs_.size())) return;
      ReadAhead(job + kReadAheadJobs);
      absl::Status status = DoJob(jobs_[static_cast<size_t>(job)], filler);
      if (status.ok() && is_caller) status = Report();
      if (!status.ok()) Stop(job, std::move(status));
    }
  }

  absl::Status DoJob(const PackJob& job, SliceFiller& filler) {
    const weights::TensorEntry& entry = writer_.directory()[job.tensor];
    const int64_t slice_bytes = weights::TensorSliceBytes(entry.layout, entry.dtype, entry.cols);
    if (job.first_slice == 0 && entry.scale_bytes > 0) {
      MOE_RETURN_IF_ERROR(filler.FillScales(job.tensor, writer_.scales(job.tensor)));
      writer_.AddProgress(entry.scale_bytes);
    }
    for (int64_t slice = job.first_slice; slice < job.first_slice + job.slice_count; ++slice) {
      uint8_t* dst = writer_.data(job.tensor) + slice * slice_bytes;
      uint32_t* exceptions = writer_.exceptions(job.tensor);
      if (exceptions != nullptr) {
        const int64_t rows = slice * weights::kChecksumRows;  // before it
        exceptions += weights::TensorExceptionBytes(entry.dtype, rows, entry.cols) / int64_t{sizeof(uint32_t)};
      }
      MOE_ASSIGN_OR_RETURN(slice_hashes_[job.tensor][static_cast<size_t>(slice)],
                           filler.Fill(job.tensor, slice, dst, exceptions));
    }
    writer_.AddProgress(job.bytes + entry.exception_bytes / weights::ChecksumSlices(entry.rows) * job.slice_count);
    const int64_t left = slices_left_[job.tensor].fetch_sub(job.slice_count, std::memory_order_acq_rel);
    if (left == job.slice_count) FinishTensor(job.tensor);
    return absl::OkStatus();
  }

  // Called by the thread that completed the tensor's last job.
  void FinishTensor(size_t tensor) {
    const weights::TensorEntry& entry = writer_.directory()[tensor];
    const auto bytes = [](const void* data, int64_t size) {
      return std::span(static_cast<const uint8_t*>(data), static_cast<size_t>(size));
    };
    writer_.SetChecksum(
        tensor, weights::CombineChecksums(slice_hashes_[tensor], bytes(writer_.scales(tensor), entry.scale_bytes),
                                          bytes(writer_.exceptions(tensor), entry.exception_bytes)));
  }

  void ReadAhead(int64_t index) {
    if (index >= static_cast<int64_t>(jobs_.size())) return;
    const PackJob& job = jobs_[static_cast<size_t>(index)];
    const checkpoint::TensorRef& weight = plan_.sources[job.tensor].weight;
    const int64_t slices = weights::ChecksumSlices(plan_.tensors[job.tensor].rows);
    const int64_t begin = weight.info->bytes / slices * job.first_slice;  // ignores padding: this is only a hint
    const int64_t bytes = std::min(weight.info->bytes - begin, job.bytes);
    const int fd = checkpoint_.shards()[static_cast<size_t>(weight.shard)].fd();
    posix_fadvise(fd, weight.info->file_offset + begin, bytes, POSIX_FADV_WILLNEED);
  }

  absl::Status Report() {
    if (options_.progress) {
      options_.progress(writer_.header().loaded_bytes.load(std::memory_order_relaxed), writer_.header().data_bytes);
    }
    return options_.interrupt ? options_.interrupt() : absl::OkStatus();
  }

  // Jobs start in order and run to completion, so the failed job with the lowest index does not depend on the threads.
  void Stop(int64_t job, absl::Status error) {
    stop_.store(true, std::memory_order_relaxed);
    const MutexLock lock(error_mutex_);
    if (job >= error_job_) return;
    error_job_ = job;
    error_ = std::move(error);
  }

  const checkpoint::Checkpoint& checkpoint_;
  const checkpoint::Plan& plan_;
  weights::SegmentWriter& writer_;
  const PackOptions& options_;
  const std::vector<PackJob> jobs_;
  const std::thread::id caller_ = std::this_thread::get_id();

  std::atomic<int64_t> next_job_{0};
  std::atomic<bool> stop_{false};
  std::vector<std::vector<uint64_t>> slice_hashes_;  // of each tensor
  std::vector<std::atomic<int64_t>> slices_left_;    // of each tensor

  Mutex error_mutex_;
  int64_t error_job_ = std::numeric_limits<int64_t>::max();
  absl::Status error_;
};

}  // namespace

absl::Status PackCheckpoint(const checkpoint::Checkpoint& checkpoint, const checkpoint::Plan& plan,
                            weights::SegmentWriter& writer, const PackOptions& options) {
  const absl::Status status = Packer(checkpoint, plan, writer, options).Run();
  if (!status.ok()) writer.Fail();
  return status;
}

}  // namespace moestro::store
