// Runs prompts through a checkpoint as it lies on disk, on every path that a CPU can compute, and writes the logits.
// compare.py compares them with another implementation's.
//
//     checkpoint_logits CHECKPOINT_DIR PROMPTS OUT_DIR
//
// PROMPTS has the token ids of a prompt in each line. MOESTRO_ISA names the kernel table
// (tests/support/test_kernels.h). OUT_DIR/PATH.logits: F32 [positions of all prompts, vocab_size].
// OUT_DIR/engine.experts (and unabsorbed.experts): int32 [positions, MoE layers, experts_per_token], ascending ids.
// Prints what compare.py must know, then a line for each path: its name, and OK or what is wrong with it. Exits with 1
// if a path failed.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <span>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "common/base/status.h"
#include "common/device/host/host_device.h"
#include "common/engine/host/host_prefill.h"
#include "common/engine/host/host_rank_kernels.h"
#include "common/model/binding.h"
#include "common/model/engine.h"
#include "common/model/head.h"
#include "services/prefill/distributed/distributed_prefill.h"
#include "services/prefill/stream/stream_prefill.h"
#include "tests/common/model/engine_harness.h"
#include "tests/services/decode/overlap/overlap_fixture.h"
#include "tests/support/segment_from_checkpoint.h"
#include "tests/support/test_kernels.h"

namespace moestro {
namespace {

using model::EngineRow;
using model::MlaForm;

constexpr int64_t kChunk = 48;  // rows of one Forward: cuts pages of 64 positions
constexpr int64_t kDeviceBytes = int64_t{1} << 30;
constexpr prefill::MemoryLimits kLimits = {.dense_bytes = int64_t{1} << 24, .ring_slots = 2};

using Prompt = std::vector<int32_t>;

class Runs {
 public:
  Runs(const weights::WeightSegment& segment, std::vector<Prompt> prompts, std::string out)
      : segment_(segment),
        weights_(model::BindWeights(segment).value()),
        prompts_(std::move(prompts)),
        out_(std::move(out)) {}

  // Of the engine, prompt by prompt, in chunks. Writes the chosen experts, too.
  absl::Status Chunked(MlaForm form) {
    const int64_t layers = spec().num_layers;
    std::vector<std::vector<int32_t>> experts(static_cast<size_t>(layers));  // of a chunk
    const auto on_routing = [&](const model::LayerRouting& routing) {
      for (const model::ExpertChoice& choice : routing.choices) {
        experts[static_cast<size_t>(routing.layer)].push_back(choice.expert);
      }
    };
    MOE_ASSIGN_OR_RETURN(const auto engine, model::Engine::Create(segment_, TestKernels(), pool_,
                                                                  {.max_rows = kChunk, .on_routing = on_routing}));
    std::ofstream file(out_ + "/" + path_ + ".experts", std::ios::binary);
    for (const Prompt& prompt : prompts_) {
      const model::TestSequence sequence = Sequence(prompt);
      const kv::KvPages pages[] = {sequence.pages()};
      for (size_t begin = 0; begin < prompt.size(); begin += kChunk) {
        const std::span<const int32_t> part =
            std::span(prompt).subspan(begin, std::min<size_t>(kChunk, prompt.size() - begin));
        for (std::vector<int32_t>& ids : experts) ids.clear();
        MOE_RETURN_IF_ERROR(engine->Forward({model::MakeRows(part, static_cast<int64_t>(begin)), pages, form},
                                            model::NeverInterrupted, Write()));
        WriteExperts(experts, part.size(), file);
      }
    }
    return absl::OkStatus();
  }

  // The weights go through a device layer by layer.
  absl::Status Streamed(MlaForm form) {
    const auto device = device::NewHostDevice({.memory_bytes = kDeviceBytes});
    engine::HostPrefill compute(spec(), weights_, TestKernels(), pool_, kChunk);
    prefill::StreamPrefill prefill(*device, spec(), weights_, compute, kLimits);
    return OfWholePrompts([&](std::span<const EngineRow> rows, std::span<const kv::KvPages> pages) {
      return prefill.Run(rows, pages, form, model::NeverInterrupted, {}, Write());
    });
  }

  // The same on two devices.
  absl::Status Ranks(roofline::ExpertParallelism experts, MlaForm form) {
    struct Rank {
      Rank(const weights::ModelSpec& spec, const model::ModelWeights& weights)
          : kernels(spec, weights, TestKernels(), pool, kChunk) {}
      WorkerPool pool{1};
      std::unique_ptr<device::Device> device = device::NewHostDevice({.memory_bytes = kDeviceBytes});
      engine::HostRankKernels kernels;
    };
    std::vector<prefill::RankSetup> setups;
    for (int i = 0; i < 2; ++i) {
      const auto rank = std::make_shared<Rank>(spec(), weights_);
      setups.push_back({rank->device.get(), &rank->kernels, {}, rank});
    }
    prefill::DistributedPrefill prefill(spec(), weights_, setups,
                                        {.experts = experts, .limits = kLimits, .new_group = [](int ranks) {
                                           return prefill::NewInProcessRankGroup(ranks, {.timeout_seconds = 30});
                                         }});
    return OfWholePrompts([&](std::span<const EngineRow> rows, std::span<const kv::KvPages> pages) {
      return prefill.Run(rows, pages, form, model::NeverInterrupted, {}, Write());
    });
  }

  // All prompts at once, a token of each in a step, half of them in each micro-batch.
  absl::Status Hybrid() {
    const auto device = device::NewHostDevice({});
    decode::HostHybrid hybrid(*device, segment_, pool_, std::ssize(prompts_), [](const model::CheckedBatch& batch) {
      return std::max<size_t>(1, batch.runs.size() / 2);
    });
    std::vector<model::TestSequence> sequences;
    std::vector<kv::KvPages> pages;
    size_t longest = 0;
    for (const Prompt& prompt : prompts_) {
      sequences.push_back(Sequence(prompt));
      pages.push_back(sequences.back().pages());
      longest = std::max(longest, prompt.size());
    }
    std::vector<model::Logits> logits(prompts_.size());
    for (size_t position = 0; position < longest; ++position) {
      std::vector<EngineRow> rows;
      for (size_t i = 0; i < prompts_.size(); ++i) {
        if (position >= prompts_[i].size()) continue;
        rows.push_back({prompts_[i][position], static_cast<int32_t>(position), static_cast<int32_t>(i), true});
      }
      MOE_RETURN_IF_ERROR(hybrid.forward().Forward(
          {rows, pages}, model::NeverInterrupted, [&](int64_t row, std::span<const float> values) {
            logits[static_cast<size_t>(rows[static_cast<size_t>(row)].sequence)].emplace_back(values.begin(),
                                                                                              values.end());
          }));
    }
    for (const model::Logits& of_prompt : logits) {
      for (const std::vector<float>& values : of_prompt) WriteLogits(values);
    }
    return absl::OkStatus();
  }

  // Runs the path and prints how it went. False if it failed.
  bool Run(const char* path, const std::function<absl::Status()>& run) {
    path_ = path;
    file_.open(out_ + "/" + path_ + ".logits", std::ios::binary);
    absl::Status status = run();
    file_.close();
    if (status.ok() && !file_) status = absl::UnavailableError(out_ + " cannot be written");
    std::printf("%s %s\n", path, status.ok() ? "OK" : status.ToString().c_str());
    return status.ok();
  }

  const weights::ModelSpec& spec() const { return segment_.spec(); }

 private:
  model::TestSequence Sequence(const Prompt& prompt) const { return {spec(), std::ssize(prompt)}; }

  void WriteLogits(std::span<const float> values) {
    file_.write(reinterpret_cast<const char*>(values.data()), static_cast<std::streamsize>(values.size_bytes()));
  }
  std::function<void(int64_t, std::span<const float>)> Write() {
    return [this](int64_t, std::span<const float> values) { WriteLogits(values); };
  }

  // A run gives the logits of the last kLogitRows positions; NaN stand for the others.
  absl::Status OfWholePrompts(
      const std::function<absl::Status(std::span<const EngineRow>, std::span<const kv::KvPages>)>& run) {
    const std::vector<float> absent(static_cast<size_t>(spec().vocab_size), std::nanf(""));
    for (const Prompt& prompt : prompts_) {
      const model::TestSequence sequence = Sequence(prompt);
      const kv::KvPages pages[] = {sequence.pages()};
      std::vector<EngineRow> rows = model::MakeRows(prompt, 0);
      for (int64_t i = 0; i + model::kLogitRows < std::ssize(rows); ++i) {
        rows[static_cast<size_t>(i)].needs_logits = false;
        WriteLogits(absent);
      }
      MOE_RETURN_IF_ERROR(run(rows, pages));
    }
    return absl::OkStatus();
  }

  void WriteExperts(const std::vector<std::vector<int32_t>>& experts, size_t tokens, std::ofstream& file) const {
    const auto k = static_cast<size_t>(spec().experts_per_token);
    for (size_t token = 0; token < tokens; ++token) {
      for (const std::vector<int32_t>& ids : experts) {
        if (ids.empty()) continue;  // a dense layer
        file.write(reinterpret_cast<const char*>(ids.data() + token * k),
                   static_cast<std::streamsize>(k * sizeof(int32_t)));
      }
    }
  }

  const weights::WeightSegment& segment_;
  const model::ModelWeights weights_;
  const std::vector<Prompt> prompts_;
  const std::string out_;
  WorkerPool pool_{1};
  std::string path_;    // that runs
  std::ofstream file_;  // its logits
};

std::vector<Prompt> ReadPrompts(const char* path) {
  std::vector<Prompt> prompts;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    std::istringstream ids(line);
    prompts.emplace_back(std::istream_iterator<int32_t>(ids), std::istream_iterator<int32_t>());
  }
  return prompts;
}

int Main(const char* checkpoint, const char* prompts, const std::string& out) {
  const absl::StatusOr<const CpuKernels*> kernels = SelectTestKernels();
  if (!kernels.ok()) {
    std::fprintf(stderr, "%s\n", kernels.status().ToString().c_str());
    return 1;
  }
  const absl::StatusOr<OwnedSegment> owned = BuildSegmentInMemory(checkpoint);
  if (!owned.ok()) {
    std::fprintf(stderr, "%s\n", owned.status().ToString().c_str());
    return 1;
  }
  Runs runs(*owned->segment, ReadPrompts(prompts), out);
  const weights::ModelSpec& spec = runs.spec();
  std::printf("{\"isa\":\"%s\",\"vocab_size\":%lld,\"token_count\":%lld}\n", std::string((*kernels)->isa).c_str(),
              static_cast<long long>(spec.vocab_size), static_cast<long long>(spec.token_count));
  const bool latent = spec.attention_kind() == weights::AttentionKind::kLatent;
  using roofline::ExpertParallelism;
  bool ok = runs.Run("engine", [&] { return runs.Chunked(MlaForm::kAbsorbed); });
  if (latent) ok &= runs.Run("unabsorbed", [&] { return runs.Chunked(MlaForm::kUnabsorbed); });
  ok &= runs.Run("streamed", [&] { return runs.Streamed(MlaForm::kUnabsorbed); });
  ok &= runs.Run("ranks_small", [&] { return runs.Ranks(ExpertParallelism::kSmall, MlaForm::kAbsorbed); });
  ok &= runs.Run("ranks_standard", [&] { return runs.Ranks(ExpertParallelism::kStandard, MlaForm::kUnabsorbed); });
  ok &= runs.Run("hybrid", [&] { return runs.Hybrid(); });
  return ok ? 0 : 1;
}

}  // namespace
}  // namespace moestro

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: %s CHECKPOINT_DIR PROMPTS OUT_DIR\n", argv[0]);
    return 2;
  }
  return moestro::Main(argv[1], argv[2], argv[3]);
}
