#include "services/cli/model/make_model/make_model.h"

#include <algorithm>
#include <thread>

#include "absl/strings/str_cat.h"
#include "common/base/mutex.h"
#include "common/base/status.h"
#include "services/cli/model/make_model/config_files.h"
#include "services/cli/model/make_model/gguf/gguf_plan.h"
#include "services/cli/model/make_model/output_directory.h"
#include "services/cli/model/make_model/shard_plan.h"
#include "services/cli/model/make_model/shard_writer.h"
#include "services/cli/model/make_model/tokenizer_files.h"

namespace moestro::cli {
namespace {

// Room for the JSON files in addition to the tensors.
constexpr int64_t kSmallFilesBytes = 16 << 20;

int WriterThreads() {
  // More threads would only wait for the page cache.
  return static_cast<int>(std::clamp(std::thread::hardware_concurrency(), 2u, 8u));
}

absl::Status CheckVocabulary(const MadeModel& model) {
  if (kTokenCount <= model.spec.vocab_size) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("--vocab-rows is ", model.spec.vocab_size, ", but the tokenizer has ",
                                                 kTokenCount, " tokens; use at least that many"));
}

absl::Status WriteSmallFiles(const std::filesystem::path& directory, const MadeModel& model,
                             const std::vector<Shard>& shards) {
  MOE_RETURN_IF_ERROR(WriteTextFile(directory / "config.json", ConfigJson(model)));
  MOE_RETURN_IF_ERROR(WriteTextFile(directory / "generation_config.json", GenerationConfigJson()));
  MOE_RETURN_IF_ERROR(WriteTextFile(directory / "tokenizer.json", kTokenizerJson));
  MOE_RETURN_IF_ERROR(WriteTextFile(directory / "tokenizer_config.json", kTokenizerConfigJson));
  return WriteTextFile(directory / "model.safetensors.index.json", ShardIndexJson(shards));
}

// Adds up what the writing threads report.
class Progress {
 public:
  Progress(const MakeModelProgress& report, int64_t total) : report_(report), total_(total) {}
  void Add(int64_t bytes) {
    const MutexLock lock(mutex_);
    done_ += bytes;
    if (report_) report_(done_, total_);
  }

 private:
  const MakeModelProgress& report_;
  const int64_t total_;
  Mutex mutex_;
  int64_t done_ = 0;
};

absl::Status WriteShards(const std::filesystem::path& directory, const std::vector<Shard>& shards, uint64_t seed,
                         const MakeModelProgress& progress) {
  int64_t total = 0;
  for (const Shard& shard : shards) total += shard.data_bytes;
  Progress written(progress, total);
  for (const Shard& shard : shards) {
    MOE_RETURN_IF_ERROR(
        WriteShard(directory, shard, seed, WriterThreads(), [&](int64_t bytes) { written.Add(bytes); }));
  }
  return absl::OkStatus();
}

absl::Status WriteGguf(const std::filesystem::path& path, const GgufPlan& plan, uint64_t seed,
                       const MakeModelProgress& progress) {
  std::vector<FilePiece> pieces;
  int64_t total = 0;
  for (const GgufTensor& tensor : plan.tensors) {
    const int64_t row_bytes = tensor.row_bytes(), step = std::max<int64_t>(1, kPieceElements / tensor.cols());
    for (int64_t begin = 0; begin < tensor.rows(); begin += step) {
      const int64_t end = std::min(begin + step, tensor.rows());
      pieces.push_back({tensor.offset + begin * row_bytes, (end - begin) * row_bytes,
                        [=, &tensor](std::byte* out) { FillGgufRows(tensor, seed, begin, end, out); }});
      total += pieces.back().bytes;
    }
  }
  Progress written(progress, total);
  return WriteFile(path, plan.header, pieces, plan.bytes, WriterThreads(), [&](int64_t bytes) { written.Add(bytes); });
}

absl::Status MakeGguf(const MakeModelOptions& options, const MadeModel& model, const MakeModelProgress& progress) {
  const GgufPlan plan = PlanGguf(model, options.preset);
  MOE_ASSIGN_OR_RETURN(OutputDirectory directory,
                       OutputDirectory::OpenFile(options.out_dir, options.force, plan.bytes));
  MOE_RETURN_IF_ERROR(WriteGguf(directory.file(), plan, options.seed, progress));
  return directory.Commit();
}

}  // namespace

absl::Status MakeModel(const MakeModelOptions& options, const MakeModelProgress& progress) {
  MOE_ASSIGN_OR_RETURN(const MadeModel model, ResolveModel(options));
  MOE_RETURN_IF_ERROR(CheckVocabulary(model));
  if (model.gguf) return MakeGguf(options, model, progress);
  const std::vector<PlannedTensor> tensors = PlanTensors(model);
  const std::vector<Shard> shards = PlanShards(tensors, model.shard_bytes);
  int64_t bytes = kSmallFilesBytes;
  for (const Shard& shard : shards) bytes += static_cast<int64_t>(shard.header.size()) + shard.data_bytes;

  MOE_ASSIGN_OR_RETURN(OutputDirectory directory, OutputDirectory::Open(options.out_dir, options.force, bytes));
  MOE_RETURN_IF_ERROR(WriteShards(directory.path(), shards, options.seed, progress));
  MOE_RETURN_IF_ERROR(WriteSmallFiles(directory.path(), model, shards));
  return directory.Commit();
}

}  // namespace moestro::cli
