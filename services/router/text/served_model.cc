#include "services/router/text/served_model.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/telemetry/log.h"

namespace moestro::router {

std::vector<std::string> NamesOf(const ServedModel& model) {
  std::vector<std::string> names = {model.name};
  std::ranges::copy_if(model.names.aliases, std::back_inserter(names),
                       [&](const std::string& alias) { return alias != model.name; });
  return names;
}

absl::StatusOr<ModelBoard::ModelPtr> ModelBoard::Described() const {
  MutexLock lock(mutex_);
  if (model_ == nullptr) return absl::UnavailableError("model is loading: " + waiting_for_);
  return model_;
}

absl::StatusOr<ModelBoard::ModelPtr> ModelBoard::Ready() const {
  MutexLock lock(mutex_);
  if (!ready_) return absl::UnavailableError("model is loading: " + waiting_for_);
  return model_;
}

ModelBoard::Load ModelBoard::load() const {
  MutexLock lock(mutex_);
  return {.ready = ready_, .progress = ready_ ? 1 : progress_, .waiting_for = ready_ ? "" : waiting_for_};
}

void ModelBoard::SetModel(ModelPtr model) {
  auto named = std::make_shared<ServedModel>(*model);
  named->names = names_;
  MutexLock lock(mutex_);
  model_ = std::move(named);
  context_ = model_->max_context_tokens;
  BoundContext();
  ready_ = false;
  progress_ = 0;
  waiting_for_ = "0 %";
}

void ModelBoard::SetProgress(int64_t loaded_bytes, int64_t total_bytes) {
  const double share = total_bytes > 0 ? static_cast<double>(loaded_bytes) / static_cast<double>(total_bytes) : 0;
  MutexLock lock(mutex_);
  progress_ = share;
  waiting_for_ = absl::StrCat(static_cast<int>(100 * share), " %");
}

void ModelBoard::SetReady() {
  MutexLock lock(mutex_);
  ready_ = model_ != nullptr;
}

void ModelBoard::SetProblem(const std::string& problem) {
  MutexLock lock(mutex_);
  waiting_for_ = problem;
}

void ModelBoard::SetKvTokens(uint64_t tokens) {
  MutexLock lock(mutex_);
  kv_tokens_ = tokens;
  if (model_ != nullptr) BoundContext();
}

void ModelBoard::BoundContext() {
  const auto bound = static_cast<uint32_t>(std::min(context_, kv_tokens_));
  if (bound == model_->max_context_tokens) return;
  auto bounded = std::make_shared<ServedModel>(*model_);
  bounded->max_context_tokens = bound;
  model_ = std::move(bounded);
  if (bound < context_) {
    LogWarning(
        "context {} tokens, of the model's {}: decode's KV pool holds no more; give it memory (/dev/shm, the limit of "
        "its control group) or --kv-tokens",
        bound, context_);
  } else {
    LogInfo("context {} tokens", bound);
  }
}

std::string ModelBoard::fingerprint() const {
  MutexLock lock(mutex_);
  return model_ == nullptr ? "" : model_->fingerprint;
}

}  // namespace moestro::router
