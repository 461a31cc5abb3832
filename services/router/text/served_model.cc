#include "services/router/text/served_model.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace moestro::router {

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
  MutexLock lock(mutex_);
  model_ = std::move(model);
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

std::string ModelBoard::fingerprint() const {
  MutexLock lock(mutex_);
  return model_ == nullptr ? "" : model_->fingerprint;
}

}  // namespace moestro::router
