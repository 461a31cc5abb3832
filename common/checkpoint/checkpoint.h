// A published checkpoint: a directory with config.json and one or more safetensors files, or a model in GGUF. Opening
// reads only headers and settings, never tensor data.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "common/base/status.h"
#include "common/checkpoint/config.h"
#include "common/checkpoint/tensor_file.h"

namespace moestro::checkpoint {

// Limit of all documents together: the other roles receive them in one message (common/rpc/channel.h).
inline constexpr int64_t kMaxDocumentsBytes = int64_t{60} << 20;

struct TensorRef {
  int shard = 0;                     // index into Checkpoint::shards()
  const TensorInfo* info = nullptr;  // owned by that shard, valid as long as the checkpoint
  int64_t offset = 0;                // bytes from the tensor's start: of a part of it
};

// Movable; holds one open descriptor per shard. Several threads may call const members concurrently.
class Checkpoint {
 public:
  // `path` is a directory, or a *.gguf file, the first one of a set. Of a directory: if model.safetensors.index.json
  // exists, its weight_map selects the files and tensors. Otherwise it must hold a single model.safetensors, or one
  // model in GGUF. GGUF files have their config.json in their metadata (gguf_config.h); other documents beside them
  // are taken. Their tensors have the segment's names (gguf_names.h).
  // NOT_FOUND: the directory, config.json, weights or a shard are missing. UNIMPLEMENTED: only pickle files; what
  // GgufConfig and TakeTensors refuse. INVALID_ARGUMENT: a malformed file, a shard name that is not a plain
  // *.safetensors file name, a mapped tensor that its shard lacks, a tensor in two shards, several models in GGUF,
  // documents too large or not UTF-8. Other errors come from the system. Messages name file and tensor.
  static absl::StatusOr<Checkpoint> Open(const std::string& path);

  // nullptr if the checkpoint has no such tensor.
  const TensorRef* Find(std::string_view name) const;

  const std::string& dir() const { return dir_; }                    // as it was opened: of GGUF, the file
  const std::vector<TensorFile>& shards() const { return shards_; }  // sorted by file name
  const absl::flat_hash_map<std::string_view, TensorRef>& tensors() const { return tensors_; }
  const CheckpointDocuments& documents() const { return documents_; }
  int64_t total_bytes() const { return total_bytes_; }  // of all tensors
  const std::vector<std::string>& warnings() const { return warnings_; }

  // 32 hex digits (XXH3-128) over the documents, the index and, for each shard, name, size, modification time and
  // header. Any change of these changes it. It does not read tensor data, so it misses a byte altered in place under a
  // restored time stamp.
  const std::string& fingerprint() const { return fingerprint_; }

 private:
  Checkpoint() = default;

  static absl::StatusOr<Checkpoint> OpenDirectory(const std::string& dir);
  static absl::StatusOr<Checkpoint> OpenGgufModel(const std::string& path);
  absl::Status OpenShards(const std::vector<std::string>& names);
  absl::Status CollectTensors(const absl::flat_hash_map<std::string, std::string>* weight_map);
  void ComputeFingerprint(std::string_view index);

  std::string dir_;
  CheckpointDocuments documents_;
  std::vector<std::string> shard_names_;
  std::vector<TensorFile> shards_;
  absl::flat_hash_map<std::string_view, TensorRef> tensors_;  // keys point to the names in shards_
  int64_t total_bytes_ = 0;
  std::string fingerprint_;
  std::vector<std::string> warnings_;
};

}  // namespace moestro::checkpoint
