// A published checkpoint: a directory with config.json and one or many safetensors files. Opening reads headers and
// settings only, never tensor data.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "common/base/status.h"
#include "common/checkpoint/config.h"
#include "common/checkpoint/safetensors.h"

namespace moestro {

// Of all documents together: what the other roles need of them comes in one message (common/rpc/channel.h).
inline constexpr int64_t kMaxDocumentsBytes = int64_t{60} << 20;

struct TensorRef {
  int shard = 0;                     // index into Checkpoint::shards()
  const TensorInfo* info = nullptr;  // owned by that shard, valid as long as the checkpoint
};

// Movable; holds one open descriptor a shard. All const members may be called from several threads at once.
class Checkpoint {
 public:
  // With model.safetensors.index.json its weight_map decides which files are read and which tensors exist; otherwise
  // the directory must hold a single model.safetensors.
  // NOT_FOUND: the directory, config.json, weights or a shard are not there. UNIMPLEMENTED: only pickle files or only
  // GGUF. INVALID_ARGUMENT: a malformed file, a shard name that is not a plain *.safetensors file name, a mapped tensor
  // that its shard lacks, a tensor in two shards, documents too large or not UTF-8. Other errors come from the system.
  // Messages name file and tensor.
  static absl::StatusOr<Checkpoint> Open(const std::string& dir);

  // nullptr when the checkpoint has no such tensor.
  const TensorRef* Find(std::string_view name) const;

  const std::string& dir() const { return dir_; }
  const std::vector<SafetensorsFile>& shards() const { return shards_; }  // sorted by file name
  const absl::flat_hash_map<std::string_view, TensorRef>& tensors() const { return tensors_; }
  const CheckpointDocuments& documents() const { return documents_; }
  int64_t total_bytes() const { return total_bytes_; }  // of all tensors
  const std::vector<std::string>& warnings() const { return warnings_; }

  // 32 hex digits (XXH3-128) over the documents, the index and, of each shard, name, size, time of last change and
  // header. Changes whenever any of these does; costs no reading of tensor data, so it does not see a data byte that
  // was altered in place with its time stamp restored.
  const std::string& fingerprint() const { return fingerprint_; }

 private:
  Checkpoint() = default;

  absl::Status OpenShards(const std::vector<std::string>& names);
  absl::Status CollectTensors(const absl::flat_hash_map<std::string, std::string>* weight_map);
  void ComputeFingerprint(std::string_view index);

  std::string dir_;
  CheckpointDocuments documents_;
  std::vector<std::string> shard_names_;
  std::vector<SafetensorsFile> shards_;
  absl::flat_hash_map<std::string_view, TensorRef> tensors_;  // keys are the names inside shards_
  int64_t total_bytes_ = 0;
  std::string fingerprint_;
  std::vector<std::string> warnings_;
};

}  // namespace moestro
