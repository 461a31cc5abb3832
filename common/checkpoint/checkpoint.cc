#include "common/checkpoint/checkpoint.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/checkpoint/file.h"
#include "common/checkpoint/gguf/gguf_config.h"
#include "common/checkpoint/gguf/gguf_file.h"
#include "common/checkpoint/gguf/gguf_names.h"
#include "common/checkpoint/gguf/gguf_texts.h"
#include "common/checkpoint/named_tokens.h"
#include "common/checkpoint/safetensors.h"
#include "common/text/json/json.h"
#include "common/text/json/quoted.h"
#include "common/text/utf8.h"

namespace moestro::checkpoint {
namespace {

constexpr char kIndexName[] = "model.safetensors.index.json";
constexpr char kSingleName[] = "model.safetensors";
constexpr char kChatTemplateName[] = "chat_template.jinja";
constexpr char kRanksName[] = "tiktoken.model";
// Of the named templates beside it, only this one has a use here.
constexpr char kToolUseName[] = "additional_chat_templates/tool_use.jinja";
// The largest published settings files (tokenizers, indexes of 150,000 tensors) have some 30 MB.
constexpr int64_t kMaxDocumentBytes = int64_t{256} << 20;

using WeightMap = absl::flat_hash_map<std::string, std::string>;  // tensor -> shard file name

std::string Join(const std::string& dir, const std::string& name) { return absl::StrCat(dir, "/", name); }

// Empty if the file does not exist.
absl::StatusOr<std::string> ReadOptional(const std::string& path) {
  absl::StatusOr<std::string> content = ReadWholeFile(path, kMaxDocumentBytes);
  if (absl::IsNotFound(content.status())) return std::string();
  return content;
}

// The list of ranks of a tokenizer: tiktoken.model, or else the only *.tiktoken. Empty if there is none.
absl::StatusOr<std::string> ReadRanks(const std::string& dir) {
  MOE_ASSIGN_OR_RETURN(std::string ranks, ReadOptional(Join(dir, kRanksName)));
  if (!ranks.empty()) return ranks;
  std::string found;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(dir, error), end; !error && entry != end; entry.increment(error)) {
    if (entry->path().extension() != ".tiktoken") continue;
    if (!found.empty()) {
      return absl::InvalidArgumentError(absl::StrCat(dir, ": has several *.tiktoken files; keep the model's one"));
    }
    found = entry->path().string();
  }
  if (error) return absl::ErrnoToStatus(error.value(), absl::StrCat(dir, ": cannot read the directory"));
  return found.empty() ? found : ReadWholeFile(found, kMaxDocumentBytes);
}

// All but config.json.
absl::StatusOr<CheckpointDocuments> ReadTexts(const std::string& dir) {
  CheckpointDocuments documents;
  MOE_ASSIGN_OR_RETURN(documents.generation_config_json, ReadOptional(Join(dir, "generation_config.json")));
  MOE_ASSIGN_OR_RETURN(documents.tokenizer_json, ReadOptional(Join(dir, "tokenizer.json")));
  MOE_ASSIGN_OR_RETURN(documents.tokenizer_config_json, ReadOptional(Join(dir, "tokenizer_config.json")));
  MOE_ASSIGN_OR_RETURN(documents.chat_template_jinja, ReadOptional(Join(dir, kChatTemplateName)));
  if (documents.tokenizer_json.empty()) {
    MOE_ASSIGN_OR_RETURN(documents.tiktoken_ranks, ReadRanks(dir));
  }
  MOE_ASSIGN_OR_RETURN(documents.tool_use_jinja, ReadOptional(Join(dir, kToolUseName)));
  return documents;
}

// Tokens that other files name become a part of tokenizer.json, which all roles read. What is wrong with config.json is
// said where it is needed.
absl::Status AddNamedTokens(const std::string& dir, CheckpointDocuments* documents) {
  const absl::StatusOr<weights::ModelSpec> spec = ParseModelSpec(documents->config_json, "");
  if (documents->tokenizer_json.empty() || !spec.ok()) return absl::OkStatus();
  MOE_ASSIGN_OR_RETURN(const std::string added, ReadOptional(Join(dir, "added_tokens.json")));
  MOE_ASSIGN_OR_RETURN(const std::string specials, ReadOptional(Join(dir, "special_tokens_map.json")));
  const TokenNames names{documents->tokenizer_config_json, added, specials};
  MOE_ASSIGN_OR_RETURN(documents->tokenizer_json,
                       WithNamedTokens(std::move(documents->tokenizer_json), names, spec->vocab_size));
  return absl::OkStatus();
}

// Rejects documents that could not be sent to the other roles.
absl::Status CheckDocuments(const CheckpointDocuments& documents, const std::string& dir) {
  const size_t bytes = documents.config_json.size() + documents.generation_config_json.size() +
                       documents.tokenizer_json.size() + documents.tokenizer_config_json.size() +
                       documents.chat_template_jinja.size() + documents.tool_use_jinja.size() +
                       documents.tiktoken_ranks.size();
  if (static_cast<int64_t>(bytes) > kMaxDocumentsBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(dir, ": settings, tokenizer.json (or tiktoken.model) and chat template have ", bytes,
                     " bytes together, more than the ", kMaxDocumentsBytes, " that can be sent to the router"));
  }
  // The other documents are JSON, whose parser checks this.
  for (const auto& [name, source] : {std::pair(kChatTemplateName, &documents.chat_template_jinja),
                                     std::pair(kToolUseName, &documents.tool_use_jinja)}) {
    if (const auto offset = text::FindInvalidUtf8(*source)) {
      return absl::InvalidArgumentError(absl::StrCat(Join(dir, name), ": not UTF-8 at byte ", *offset, "; convert it"));
    }
  }
  return absl::OkStatus();
}

// Explains why a directory without an index and without model.safetensors cannot be opened.
absl::Status ExplainNoWeights(const std::string& dir) {
  bool pickle = false, safetensors = false;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(dir, error), end; !error && entry != end; entry.increment(error)) {
    const std::string extension = entry->path().extension().string();
    pickle |=
        extension == ".bin" || extension == ".pt" || extension == ".pth" || extension == ".ckpt" || extension == ".pkl";
    safetensors |= extension == ".safetensors";
  }
  if (error) return absl::ErrnoToStatus(error.value(), absl::StrCat(dir, ": cannot read the directory"));
  if (safetensors) {
    return absl::NotFoundError(absl::StrCat(dir, ": has safetensors files, but neither ", kIndexName, " nor ",
                                            kSingleName, "; download the index too"));
  }
  if (pickle) {
    return absl::UnimplementedError(absl::StrCat(
        dir,
        ": holds only pickle files (*.bin, *.pt), which can run code when loaded and are never opened; get the "
        "safetensors version of the model"));
  }
  return absl::NotFoundError(absl::StrCat(dir, ": no ", kIndexName, " and no ", kSingleName));
}

absl::Status CheckShardName(const std::string& name, const std::string& tensor, const std::string& index_path) {
  const auto fail = [&](absl::string_view why) {
    return absl::InvalidArgumentError(absl::StrCat(index_path, ": weight_map: tensor ", text::Quoted(tensor),
                                                   ": file name ", text::Quoted(name), " ", why));
  };
  if (name.empty() || name.find_first_of(std::string_view("/\\\0", 3)) != std::string::npos ||
      absl::StrContains(name, "..")) {
    return fail("is not a plain file name");
  }
  if (!absl::EndsWith(name, ".safetensors")) return fail("does not end in .safetensors; other formats are not loaded");
  return absl::OkStatus();
}

absl::StatusOr<WeightMap> ParseIndex(std::string_view text, const std::string& path) {
  MOE_ASSIGN_OR_RETURN(const nlohmann::json document, text::ParseJsonObject(text, path));
  const auto found = document.find("weight_map");
  if (found == document.end() || !found->is_object() || found->empty()) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": weight_map: missing, empty or not an object"));
  }
  WeightMap map;
  for (const auto& [tensor, file] : found->items()) {
    if (!file.is_string()) {
      return absl::InvalidArgumentError(absl::StrCat(path, ": weight_map: tensor ", text::Quoted(tensor), ": ",
                                                     text::Describe(file), " is not a file name"));
    }
    const std::string& name = file.get_ref<const std::string&>();
    MOE_RETURN_IF_ERROR(CheckShardName(name, tensor, path));
    map.emplace(tensor, name);
  }
  return map;
}

std::vector<std::string> ShardNames(const WeightMap& map) {
  std::set<std::string> names;
  for (const auto& [tensor, file] : map) names.insert(file);
  return {names.begin(), names.end()};
}

}  // namespace

absl::StatusOr<Checkpoint> Checkpoint::Open(const std::string& path) {
  if (IsGguf(path)) return OpenGgufModel(path);
  return OpenDirectory(path);
}

absl::StatusOr<Checkpoint> Checkpoint::OpenDirectory(const std::string& dir) {
  Checkpoint checkpoint;
  checkpoint.dir_ = dir;
  const std::string index_path = Join(dir, kIndexName);
  MOE_ASSIGN_OR_RETURN(const std::string index, ReadOptional(index_path));
  std::error_code error;
  const bool has_index = !index.empty() || std::filesystem::exists(index_path, error);
  if (!has_index && !std::filesystem::exists(Join(dir, kSingleName), error)) {
    const absl::StatusOr<std::string> gguf = FindGguf(dir);
    if (absl::IsNotFound(gguf.status())) return ExplainNoWeights(dir);
    MOE_RETURN_IF_ERROR(gguf);
    return OpenGgufModel(*gguf);
  }
  MOE_ASSIGN_OR_RETURN(std::string config, ReadWholeFile(Join(dir, "config.json"), kMaxDocumentBytes));
  MOE_ASSIGN_OR_RETURN(checkpoint.documents_, ReadTexts(dir));
  checkpoint.documents_.config_json = std::move(config);
  MOE_RETURN_IF_ERROR(AddNamedTokens(dir, &checkpoint.documents_));
  MOE_RETURN_IF_ERROR(CheckDocuments(checkpoint.documents_, dir));
  if (has_index) {
    MOE_ASSIGN_OR_RETURN(const WeightMap map, ParseIndex(index, index_path));
    MOE_RETURN_IF_ERROR(Annotate(checkpoint.OpenShards(ShardNames(map)), kIndexName));
    MOE_RETURN_IF_ERROR(checkpoint.CollectTensors(&map));
  } else {
    MOE_RETURN_IF_ERROR(checkpoint.OpenShards({kSingleName}));
    MOE_RETURN_IF_ERROR(checkpoint.CollectTensors(nullptr));
  }
  checkpoint.ComputeFingerprint(index);
  return checkpoint;
}

absl::StatusOr<Checkpoint> Checkpoint::OpenGgufModel(const std::string& path) {
  Checkpoint checkpoint;
  checkpoint.dir_ = path;
  MOE_ASSIGN_OR_RETURN(GgufModel model, OpenGguf(path));
  const std::string beside = std::filesystem::path(path).parent_path().string();
  MOE_ASSIGN_OR_RETURN(checkpoint.documents_, ReadTexts(beside.empty() ? "." : beside));
  MOE_ASSIGN_OR_RETURN(checkpoint.documents_.config_json, GgufConfig(model));
  const absl::StatusOr<weights::ModelSpec> spec = ParseModelSpec(checkpoint.documents_.config_json, "");
  if (!spec.ok()) return Annotate(spec.status(), absl::StrCat(path, ": metadata as"));
  MOE_RETURN_IF_ERROR(AddNamedTokens(beside.empty() ? "." : beside, &checkpoint.documents_));
  MOE_RETURN_IF_ERROR(AddGgufTexts(model.metadata, spec->vocab_size, &checkpoint.documents_));
  MOE_RETURN_IF_ERROR(CheckDocuments(checkpoint.documents_, path));
  MOE_ASSIGN_OR_RETURN(checkpoint.shards_, TakeTensors(std::move(model), *spec));
  for (const TensorFile& shard : checkpoint.shards_) {
    checkpoint.shard_names_.push_back(std::filesystem::path(shard.path()).filename().string());
  }
  MOE_RETURN_IF_ERROR(checkpoint.CollectTensors(nullptr));
  checkpoint.ComputeFingerprint("");
  return checkpoint;
}

const TensorRef* Checkpoint::Find(std::string_view name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? nullptr : &found->second;
}

absl::Status Checkpoint::OpenShards(const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    MOE_ASSIGN_OR_RETURN(TensorFile shard, OpenSafetensors(Join(dir_, name), &warnings_));
    shards_.push_back(std::move(shard));
    shard_names_.push_back(name);
  }
  return absl::OkStatus();
}

absl::Status Checkpoint::CollectTensors(const absl::flat_hash_map<std::string, std::string>* weight_map) {
  std::vector<std::string_view> unmapped;
  for (int s = 0; s < static_cast<int>(shards_.size()); ++s) {
    for (const TensorInfo& info : shards_[s].tensors()) {
      const auto [entry, inserted] = tensors_.emplace(info.name, TensorRef{.shard = s, .info = &info});
      if (!inserted) {
        return absl::InvalidArgumentError(absl::StrCat(shards_[s].path(), ": tensor ", text::Quoted(info.name),
                                                       " is also in ", shard_names_[entry->second.shard]));
      }
      if (weight_map != nullptr && !weight_map->contains(info.name)) unmapped.push_back(info.name);
    }
  }
  if (weight_map != nullptr) {
    for (const auto& [name, file] : *weight_map) {
      const TensorRef* ref = Find(name);
      if (ref == nullptr || shard_names_[ref->shard] != file) {
        return absl::InvalidArgumentError(absl::StrCat(Join(dir_, file), ": tensor ", text::Quoted(name),
                                                       " is missing, but ", kIndexName, " lists it"));
      }
    }
  }
  if (!unmapped.empty()) {
    warnings_.push_back(absl::StrCat(dir_, ": ", unmapped.size(), " tensor(s) that ", kIndexName,
                                     " does not list are ignored, the first is ", text::Quoted(unmapped.front()),
                                     " in ", shard_names_[tensors_.at(unmapped.front()).shard]));
  }
  for (const std::string_view name : unmapped) tensors_.erase(name);
  for (const auto& [name, ref] : tensors_) total_bytes_ += ref.info->bytes;
  return absl::OkStatus();
}

void Checkpoint::ComputeFingerprint(std::string_view index) {
  std::string manifest;
  for (const std::string_view document :
       {std::string_view(documents_.config_json), std::string_view(documents_.generation_config_json),
        std::string_view(documents_.tokenizer_json), std::string_view(documents_.tokenizer_config_json),
        std::string_view(documents_.chat_template_jinja), index}) {
    absl::StrAppend(&manifest, HashHex(document), "\n");
  }
  // Only where there are ranks: the fingerprint of other checkpoints stays as it was.
  if (!documents_.tiktoken_ranks.empty()) absl::StrAppend(&manifest, HashHex(documents_.tiktoken_ranks), "\n");
  if (!documents_.tool_use_jinja.empty()) {
    absl::StrAppend(&manifest, kToolUseName, " ", HashHex(documents_.tool_use_jinja), "\n");
  }
  for (size_t s = 0; s < shards_.size(); ++s) {
    absl::StrAppend(&manifest, shard_names_[s].size(), " ", shard_names_[s], " ", shards_[s].size(), " ",
                    shards_[s].mtime_ns(), " ", shards_[s].header_hash(), "\n");
  }
  fingerprint_ = HashHex(manifest);
}

}  // namespace moestro::checkpoint
