// What the router knows about the model that the weight store serves.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/mutex.h"
#include "services/router/text/model_text.h"

namespace moestro::router {

// By which names clients may call the model, beside its own.
struct ModelNames {
  std::vector<std::string> aliases = {};  // listed like its own
  bool strict = false;                    // no others; else every name means the one model that is here
};

struct ServedModel {  // immutable once shared
  std::string name;
  ModelNames names;
  std::string family;
  std::string fingerprint;
  uint32_t max_context_tokens = 0;  // what a request may hold: the model's context, or less if the KV pool has less
  uint32_t vocab_size = 0;
  int64_t segment_bytes = 0;
  std::vector<int32_t> stop_ids;
  float default_temperature = 1;
  float default_top_p = 1;
  int32_t default_top_k = 0;
  float default_min_p = 0;
  float default_repetition_penalty = 1;
  std::string sampling_source;      // of the five above, for people
  uint32_t default_max_tokens = 0;  // of an answer, as the checkpoint has it; 0 = it has none
  std::string bos_token;            // empty = it has none; the same of the next three
  std::string eos_token;
  std::string chat_template;      // Jinja
  std::string tool_use_template;  // of chats with tools, where the model has one of its own
  int64_t created_seconds = 0;    // when this router learned of the model, since 1970
  std::shared_ptr<const ModelText> text;
};

// Its own name, and then its aliases.
std::vector<std::string> NamesOf(const ServedModel& model);

// The router's current model, as learned from the weight store. Thread-safe. A request keeps the model it began with; a
// new model applies to later requests.
class ModelBoard {
 public:
  using ModelPtr = std::shared_ptr<const ServedModel>;

  // `names`: of all models.
  explicit ModelBoard(ModelNames names = {}) : names_(std::move(names)) {}

  // The model once its checkpoint is described, even while its weights load. Before that UNAVAILABLE with the reason.
  absl::StatusOr<ModelPtr> Described() const;
  // The model once its weights are in memory. Before that UNAVAILABLE with the progress.
  absl::StatusOr<ModelPtr> Ready() const;

  // How far the model is, for display.
  struct Load {
    bool ready = false;
    double progress = 0;      // of the weights, 0 to 1
    std::string waiting_for;  // unless it is ready
  };
  Load load() const;

  void SetModel(ModelPtr model);  // described, not ready; with the model's own context
  void SetProgress(int64_t loaded_bytes, int64_t total_bytes);
  void SetReady();
  // Sets the reason why no model is described or ready. Has no effect once the model is ready: its weights stay mapped
  // while the store is away.
  void SetProblem(const std::string& problem);

  // What decode's KV pool can hold; it bounds the context of this model and of later ones.
  void SetKvTokens(uint64_t tokens);

  std::string fingerprint() const;  // of the described model; empty = none

 private:
  void BoundContext() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const ModelNames names_;
  mutable Mutex mutex_;
  uint64_t kv_tokens_ ABSL_GUARDED_BY(mutex_) = UINT64_MAX;
  uint64_t context_ ABSL_GUARDED_BY(mutex_) = 0;  // the model's own
  ModelPtr model_ ABSL_GUARDED_BY(mutex_);
  bool ready_ ABSL_GUARDED_BY(mutex_) = false;
  double progress_ ABSL_GUARDED_BY(mutex_) = 0;
  std::string waiting_for_ ABSL_GUARDED_BY(mutex_) = "the weight store has not answered yet";
};

}  // namespace moestro::router
