// The only file of the command line that looks into another service: the weight store's libraries know checkpoints.
#include "services/cli/model/inspect.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/read_file.h"
#include "common/base/status.h"
#include "common/checkpoint/checkpoint.h"
#include "common/checkpoint/config.h"
#include "common/checkpoint/gguf/gguf_file.h"
#include "common/checkpoint/inventory.h"
#include "common/checkpoint/model_location.h"
#include "common/checkpoint/quantization.h"
#include "common/checkpoint/segment_plan.h"
#include "common/checkpoint/texts.h"
#include "common/platform/bandwidth.h"
#include "common/platform/cgroup_cpu.h"
#include "common/platform/instance.h"
#include "common/platform/process_memory.h"
#include "common/platform/shared_memory.h"
#include "common/roofline/shapes.h"
#include "common/roofline/work_count.h"
#include "common/text/json/quoted.h"
#include "common/weights/tensor_size.h"
#include "services/cli/model/product_rate.h"

namespace moestro::cli {
namespace {

using Json = nlohmann::ordered_json;

// The length at which a token's costs are told: long enough that KV counts, as in a conversation.
constexpr int64_t kContext = 4096;

const char* KindOf(const model::ModelTensor& tensor) {
  if (tensor.role == model::TensorRole::kNorm) return "norms";
  switch (tensor.part) {
    case model::TensorPart::kModel:
      return "embedding and head";
    case model::TensorPart::kAttention:
      return "attention";
    case model::TensorPart::kRouting:
      return "routers";
    case model::TensorPart::kDenseMlp:
      return "dense feed-forward";
    case model::TensorPart::kExpert:
      return "routed experts";
    case model::TensorPart::kSharedExpert:
      return "shared experts";
  }
  return "";
}

Json ParametersJson(const weights::ModelSpec& spec) {
  Json kinds = Json::object();
  for (const model::ModelTensor& tensor : model::CheckpointTensors(spec)) {
    const char* kind = KindOf(tensor);
    kinds[kind] = kinds.value(kind, int64_t{0}) + tensor.elements();
  }
  return kinds;
}

Json BytesJson(const std::vector<checkpoint::InventoryItem>& inventory) {
  Json kinds = Json::object();
  for (const checkpoint::InventoryItem& item : inventory) {
    const char* kind = KindOf(item.expected);
    kinds[kind] = kinds.value(kind, int64_t{0}) + item.bytes();
  }
  return kinds;
}

absl::Status AddSegmentNeed(const weights::ModelSpec& spec, const std::vector<weights::TensorPlan>& plan, Json& json) {
  const int64_t need = weights::SegmentWriter::RequiredBytes(plan);
  MOE_ASSIGN_OR_RETURN(const int64_t free, SharedMemory::FreeBytes());
  MOE_ASSIGN_OR_RETURN(const AvailableMemory available, ReadAvailableMemory());
  json["segment_bytes"] = need;
  if (spec.tied_head != 0) json["tied_head_bytes"] = checkpoint::HeadBytes(plan);
  json["free_shared_memory_bytes"] = free;
  json["available_memory_bytes"] = available.bytes;
  json["fits"] = need <= std::min(free, available.bytes);
  return absl::OkStatus();
}

std::string ActiveAre(const weights::ModelSpec& spec) {
  std::vector<std::string> others;
  if (spec.num_moe_layers() > 0) {
    others.push_back(absl::StrCat(spec.num_experts - spec.experts_per_token, " of ", spec.num_experts,
                                  " routed experts of a layer"));
  }
  if (spec.tied_head == 0) others.push_back("the embedding, of which it reads a row");
  return absl::StrCat("all that a token multiplies", others.empty() ? "" : ": not ", absl::StrJoin(others, ", nor "));
}

// Publishers count differently: their figures are these, with or without embedding and head.
void AddParameters(const weights::ModelSpec& spec, int64_t prediction_layers, Json& json) {
  const int64_t parameters = model::ParameterCount(spec), active = model::ActiveParameterCount(spec);
  json["parameters"] = parameters;
  if (prediction_layers > 0) {
    json["parameters_on_disk"] = parameters + prediction_layers * model::PredictionLayerParameterCount(spec);
    json["on_disk_are"] = absl::StrCat("with multi-token prediction, which is not served: ", prediction_layers,
                                       " layer(s), with copies of embedding and head");
  }
  json["active_parameters"] = active;
  json["active_are"] = ActiveAre(spec);
  if (spec.tied_head == 0) json["active_parameters_with_embedding"] = active + spec.vocab_size * spec.hidden_size;
}

// What prefill needs on a device that weights are streamed through, without activations: the largest layer's dense
// weights and those of the next, and two experts, one computed and one on its way.
Json StreamingJson(const weights::ModelSpec& spec, const roofline::ModelCount& count) {
  double dense = 0, expert = 0, layer_bytes = 0;
  for (const roofline::LayerCount& layer : count.layers) {
    const double fixed = layer.attention.bytes + layer.router.bytes + layer.dense.bytes;
    dense = std::max(dense, fixed);
    expert = std::max(expert, layer.expert.bytes);
    layer_bytes = std::max(layer_bytes, fixed + static_cast<double>(spec.num_experts) * layer.expert.bytes);
  }
  Json json;
  json["least_bytes"] = static_cast<int64_t>(2 * dense + 2 * expert);
  json["whole_layers_bytes"] = static_cast<int64_t>(2 * layer_bytes);
  json["counts"] = "weights of two layers, with two experts or all; activations come on top";
  return json;
}

// Rates of this machine, given or measured.
struct Rates {
  double bytes = 0;       // of memory, per second
  double operations = 0;  // multiplications and additions per second
};

absl::StatusOr<Rates> FindRates(DType linear, const InspectOptions& options) {
  Rates rates{options.memory_bytes_per_second, options.operations_per_second};
  const int threads = UsableCpus();
  if (rates.bytes == 0) {
    MOE_ASSIGN_OR_RETURN(const double copy, MeasureCopyBandwidth(threads));
    rates.bytes = 2 * copy;
  }
  if (rates.operations == 0) {
    MOE_ASSIGN_OR_RETURN(rates.operations, MeasureProductRate(linear, threads));
  }
  return rates;
}

absl::StatusOr<Json> EstimateJson(const weights::ModelSpec& spec, const roofline::ModelCount& count, DType linear,
                                  const InspectOptions& options) {
  MOE_ASSIGN_OR_RETURN(const Rates rates, FindRates(linear, options));
  const int64_t tokens = std::min<int64_t>(kContext, spec.max_position_embeddings);
  const int64_t experts = spec.num_moe_layers() * spec.experts_per_token;
  const double bytes = roofline::DecodeBytes(spec, count, tokens - 1, 1, experts);
  const double operations = roofline::PrefillOperations(spec, model::MlaForm::kUnabsorbed, tokens);
  const double prefill_bytes = roofline::PrefillBytes(spec, count, tokens);
  Json json;
  json["memory_bytes_per_second"] = static_cast<int64_t>(rates.bytes);
  json["memory_rate_is"] =
      options.memory_bytes_per_second == 0 ? "measured: bytes that a copy reads and writes" : "given: --bandwidth";
  json["operations_per_second"] = rates.operations;
  json["operation_rate_is"] =
      options.operations_per_second == 0 ? "measured: products with weights in a cache" : "given: --gflops";
  json["context_tokens"] = tokens;
  json["bytes_per_token"] = static_cast<int64_t>(bytes);
  json["decode_tokens_per_second"] = rates.bytes / bytes;
  json["prefill_operations"] = operations;
  json["prefill_bytes"] = static_cast<int64_t>(prefill_bytes);
  json["prefill_seconds"] = std::max(operations / rates.operations, prefill_bytes / rates.bytes);
  json["prefill_is"] = absl::StrCat("an estimate for the CPU: a prompt of ", tokens, " tokens takes at least so long");
  json["assumes"] =
      "one sequence, all weights in memory, each byte read once, all operations at the rate of products; "
      "real decode and prefill are slower";
  return json;
}

// The types of the linear layers, the one with most bytes first.
std::string TypesOf(const std::vector<weights::TensorPlan>& plan) {
  std::map<DType, int64_t> bytes;
  for (const weights::TensorPlan& tensor : plan) {
    if (tensor.layout != weights::TensorLayout::kPacked || tensor.name == model::kHeadName) continue;
    bytes[tensor.dtype] += weights::TensorDataBytes(tensor.layout, tensor.dtype, tensor.rows, tensor.cols);
  }
  if (bytes.contains(DType::kF8E4M3)) return "FP8 with 128x128 block scales";
  std::vector<std::pair<int64_t, DType>> types;
  for (const auto& [type, sum] : bytes) types.emplace_back(-sum, type);
  std::ranges::sort(types);
  return absl::StrJoin(types, ", ", [](std::string* out, const auto& type) { out->append(DTypeName(type.second)); });
}

absl::StatusOr<Json> Describe(const weights::ModelSpec& spec, int64_t prediction_layers,
                              const std::vector<weights::TensorPlan>& plan, const InspectOptions& options) {
  absl::flat_hash_map<std::string_view, DType> types;
  for (const weights::TensorPlan& tensor : plan) types[tensor.name] = tensor.dtype;
  const roofline::ModelCount count = roofline::CountModel(
      spec, roofline::ShapesOnly(spec, [&](const model::ModelTensor& tensor) { return types.at(tensor.name); }));
  Json json;
  json["family"] = spec.family;
  json["weights"] = TypesOf(plan);
  AddParameters(spec, prediction_layers, json);
  json["shapes"] = ShapesJson(spec);
  json["parameters_by_kind"] = ParametersJson(spec);
  MOE_RETURN_IF_ERROR(AddSegmentNeed(spec, plan, json));
  json["streaming_on_a_gpu"] = StreamingJson(spec, count);
  DType multiplied = DType::kBF16;  // what formats of blocks are multiplied as, too
  for (const weights::TensorPlan& tensor : plan) {
    if (tensor.dtype == DType::kF8E4M3 || tensor.dtype == DType::kI8) multiplied = tensor.dtype;
  }
  MOE_ASSIGN_OR_RETURN(json["estimate"], EstimateJson(spec, count, multiplied, options));
  return json;
}

absl::StatusOr<Json> InspectConfig(const std::string& config, const InspectOptions& options) {
  MOE_ASSIGN_OR_RETURN(const weights::ModelSpec spec, checkpoint::ParseModelSpec(config, /*tokenizer_json=*/""));
  MOE_ASSIGN_OR_RETURN(const checkpoint::Quantization quantization, checkpoint::ParseQuantization(config));
  MOE_ASSIGN_OR_RETURN(const int64_t prediction_layers, checkpoint::PredictionLayers(config));
  MOE_ASSIGN_OR_RETURN(const std::vector<weights::TensorPlan> plan,
                       checkpoint::PlanShapes(spec, quantization.fp8, quantization.experts()));
  return Describe(spec, prediction_layers, plan, options);
}

// The objects of the instance that hold this checkpoint.
absl::StatusOr<Json> LoadedAs(const std::string& instance, const std::string& fingerprint) {
  std::string prefix = WeightSegmentName(instance, fingerprint, 0);
  prefix.pop_back();  // the generation
  MOE_ASSIGN_OR_RETURN(const std::vector<SharedMemory::Listing> listings, SharedMemory::List(prefix));
  Json names = Json::array();
  for (const SharedMemory::Listing& listing : listings) names.push_back(listing.name);
  return names;
}

absl::StatusOr<Json> InspectFiles(const std::string& path, const InspectOptions& options) {
  MOE_ASSIGN_OR_RETURN(const checkpoint::Checkpoint checkpoint, checkpoint::Checkpoint::Open(path));
  const checkpoint::CheckpointDocuments& documents = checkpoint.documents();
  MOE_ASSIGN_OR_RETURN(const weights::ModelSpec spec,
                       checkpoint::ParseModelSpec(documents.config_json, documents.tokenizer_json));
  std::vector<std::string> warnings = checkpoint.warnings();
  MOE_ASSIGN_OR_RETURN(const checkpoint::GenerationDefaults defaults,
                       checkpoint::ParseGenerationDefaults(documents, spec.vocab_size));
  MOE_RETURN_IF_ERROR(checkpoint::CheckTexts(documents, defaults, spec, &warnings));
  std::vector<checkpoint::SkippedTensors> skipped;
  MOE_ASSIGN_OR_RETURN(const std::vector<checkpoint::InventoryItem> inventory,
                       checkpoint::CheckInventory(checkpoint, spec, &warnings, &skipped));
  // Who saves a checkpoint again may leave them out.
  const bool predicts = std::ranges::any_of(
      skipped, [](const checkpoint::SkippedTensors& group) { return group.group == checkpoint::kPredictionGroup; });
  MOE_ASSIGN_OR_RETURN(const int64_t prediction_layers, checkpoint::PredictionLayers(documents.config_json));
  MOE_ASSIGN_OR_RETURN(const checkpoint::Plan plan, checkpoint::MakePlan(inventory, spec));
  MOE_ASSIGN_OR_RETURN(Json json, Describe(spec, predicts ? prediction_layers : 0, plan.tensors, options));
  json["directory"] = text::Printable(path);
  json["files"] = checkpoint.shards().size();
  json["checkpoint_bytes"] = checkpoint.total_bytes();
  json["bytes_by_kind"] = BytesJson(inventory);
  for (const checkpoint::SkippedTensors& group : skipped) {
    json["left_out"][group.group] = {{"tensors", group.tensors}, {"bytes", group.bytes}};
  }
  json["sampling"] = {{"temperature", defaults.temperature},
                      {"top_p", defaults.top_p},
                      {"top_k", defaults.top_k},
                      {"min_p", defaults.min_p},
                      {"repetition_penalty", defaults.repetition_penalty},
                      {"source", defaults.sampling_source}};
  json["fingerprint"] = checkpoint.fingerprint();
  MOE_ASSIGN_OR_RETURN(json["loaded_as"], LoadedAs(options.instance, checkpoint.fingerprint()));
  json["warnings"] = warnings;
  return json;
}

// A model as it was named: where its files are, or only its config.
struct Named {
  std::string path = {};
  std::string config = {};
};

// A file or a directory wins over a published model, a downloaded one too.
absl::StatusOr<Named> Find(const std::string& model) {
  std::error_code error;
  const bool is_file = std::filesystem::exists(model, error) && !std::filesystem::is_directory(model, error);
  if (is_file && !checkpoint::IsGguf(model)) {
    MOE_ASSIGN_OR_RETURN(std::string config, ReadFile(model));
    return Named{.config = std::move(config)};
  }
  const absl::StatusOr<checkpoint::ModelLocation> location = checkpoint::LocateModel(model);
  if (location.ok()) return Named{.path = location->path};
  std::optional<std::string> published = checkpoint::FindPublishedConfig(model);
  if (!absl::IsNotFound(location.status()) || !published) return location.status();
  return Named{.config = *std::move(published)};
}

}  // namespace

absl::StatusOr<weights::ModelSpec> ReadModelSpec(const std::string& model) {
  MOE_ASSIGN_OR_RETURN(Named named, Find(model));
  if (checkpoint::IsGguf(named.path)) {
    MOE_ASSIGN_OR_RETURN(const checkpoint::Checkpoint checkpoint, checkpoint::Checkpoint::Open(named.path));
    named.config = checkpoint.documents().config_json;
  } else if (!named.path.empty()) {
    MOE_ASSIGN_OR_RETURN(named.config, ReadFile(named.path + "/config.json"));
  }
  return checkpoint::ParseModelSpec(named.config, /*tokenizer_json=*/"");
}

absl::Status CheckHasExperts(const weights::ModelSpec& spec, const std::string& model, const std::string& what) {
  if (spec.num_moe_layers() > 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("--model ", model, ": no layer has routed experts, which ", what,
                                                 " is about; choose another model"));
}

absl::StatusOr<Json> InspectCheckpoint(const std::string& model, const InspectOptions& options) {
  MOE_RETURN_IF_ERROR(Annotate(ValidateInstanceName(options.instance), "--instance"));
  MOE_ASSIGN_OR_RETURN(const Named named, Find(model));
  if (!named.path.empty()) return InspectFiles(named.path, options);
  return InspectConfig(named.config, options);
}

}  // namespace moestro::cli
