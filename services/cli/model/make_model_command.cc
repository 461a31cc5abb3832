#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/base/status.h"
#include "common/report/number.h"
#include "services/cli/command.h"
#include "services/cli/model/make_model/config_files.h"
#include "services/cli/model/make_model/make_model.h"
#include "services/cli/output.h"

namespace moestro::cli {
namespace {

// A bar on stderr, rewritten in place. Prints nothing unless stderr is a terminal.
class ProgressBar {
 public:
  ~ProgressBar() {
    if (percent_ >= 0) std::fprintf(stderr, "\r\033[K");
  }
  void Show(int64_t done, int64_t total) {
    const int percent =
        total > 0 ? static_cast<int>(100 * static_cast<double>(done) / static_cast<double>(total)) : 100;
    if (!terminal_ || percent == percent_) return;
    percent_ = percent;
    constexpr int kWidth = 40;
    const std::string bar(static_cast<size_t>(kWidth * percent / 100), '#');
    std::fprintf(stderr, "\r[%-*s] %3d %%  %s / %s", kWidth, bar.c_str(), percent, HumanBytes(done).c_str(),
                 HumanBytes(total).c_str());
    std::fflush(stderr);
  }

 private:
  const bool terminal_ = IsTerminal(StandardStream::kStderr);
  int percent_ = -1;
};

absl::Status Make(const MakeModelOptions& options) {
  MOE_ASSIGN_OR_RETURN(const MadeModel model, ResolveModel(options));
  int64_t bytes = 0;
  {
    ProgressBar bar;
    MOE_RETURN_IF_ERROR(MakeModel(options, [&](int64_t done, int64_t total) {
      bytes = total;
      bar.Show(done, total);
    }));
  }
  int files = 1;
  if (!model.gguf) {
    const std::filesystem::directory_iterator entries(options.out_dir);
    files = static_cast<int>(std::count_if(
        begin(entries), end(entries), [](const auto& entry) { return entry.path().extension() == ".safetensors"; }));
  }
  PrintText(absl::StrFormat("%s: %s of %s tensors in %d %s\n", options.out_dir, HumanBytes(bytes), model.weights, files,
                            model.gguf ? "file" : "files"));
  return absl::OkStatus();
}

}  // namespace

void AddMakeModelCommand(FlagSet& program, std::vector<Command>& commands) {
  const auto options = std::make_shared<MakeModelOptions>();
  FlagSet command = program.AddCommand(
      "make-model", "Write a checkpoint with the layout of a published model and reproducible random weights");
  std::vector<std::string> presets;
  for (const auto& [name, what] : MakeModelPresets()) presets.push_back(name);
  command.Add("--preset", options->preset, absl::StrJoin(MakeModelPresets(), "; ", absl::PairFormatter(": ")))
      .OneOf(presets);
  command.Add("--out", options->out_dir, "Directory to create, or FILE.gguf: one file in GGUF").Required();
  command.Add("--layers", options->layers, "Decoder layers; 0: the preset's");
  command.Add("--experts", options->experts, "Routed experts per layer; 0: the preset's");
  command.Add("--vocab-rows", options->vocab_rows, "Rows of embedding and head; 0: the preset's");
  command.Add("--seed", options->seed, "The same options and seed give the same bytes");
  command.Add("--shard-bytes", options->shard_bytes, "Tensor bytes per file; 0: the preset's");
  command
      .Add(
          "--weights", options->weights,
          "fp8: with block scales; bf16: dequantised; int4, mxfp4, int4_asym: bf16, but routed experts in four bits, "
          "as compressed-tensors keeps them; awq, gptq: the same as these do; int8, w8a8_int8: bf16, but linear layers "
          "in eight bits, with compressed-tensors' config or SGLang's; in GGUF: bf16, f16, q8_0, q6_k, q4_k_m, q4_0, "
          "mxfp4; if not given, what the preset has, in GGUF bf16")
      .OneOf(MakeModelWeights());
  command.AddSwitch("--force", options->force, "Replace an existing checkpoint");
  commands.push_back({command, [options] { return Make(*options); }});
}

}  // namespace moestro::cli
