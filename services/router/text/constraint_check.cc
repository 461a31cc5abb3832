#include "services/router/text/constraint_check.h"

#include <openssl/evp.h>

#include <utility>

#include "common/base/check.h"
#include "common/base/status.h"
#include "common/text/grammar/compile.h"
#include "common/text/grammar/limits.h"

namespace moestro::router {
namespace {

// Of some hundred clients with tools of their own; 1 KiB each at most, as messages are cut.
constexpr size_t kKept = 1024;
constexpr size_t kMostMessageBytes = 800;

std::string HashOf(const Constraint& constraint) {
  std::string text(1, static_cast<char>(constraint.kind));
  text += constraint.text;
  std::string hash(EVP_MAX_MD_SIZE, '\0');
  unsigned size = 0;
  MOE_CHECK(EVP_Digest(text.data(), text.size(), reinterpret_cast<unsigned char*>(hash.data()), &size, EVP_sha256(),
                       nullptr) == 1);
  hash.resize(size);
  return hash;
}

}  // namespace

std::optional<absl::Status> KnownConstraints::Find(const std::string& hash) {
  const MutexLock lock(mutex_);
  const auto found = by_hash_.find(hash);
  if (found == by_hash_.end()) return std::nullopt;
  recent_.splice(recent_.begin(), recent_, found->second);
  return found->second->result;
}

void KnownConstraints::Note(const std::string& hash, const absl::Status& result) {
  if (result.message().size() > kMostMessageBytes) return;
  const MutexLock lock(mutex_);
  if (by_hash_.contains(hash)) return;
  recent_.push_front({hash, result});
  by_hash_[hash] = recent_.begin();
  if (recent_.size() <= kKept) return;
  by_hash_.erase(recent_.back().hash);
  recent_.pop_back();
}

ConstraintCheck ConstraintCheck::Quick(KnownConstraints& known) {
  return {known, text::grammar::CompileBudget::Quick()};
}

ConstraintCheck ConstraintCheck::Whole(KnownConstraints& known, const std::function<absl::Status()>& check) {
  return {known, text::grammar::CompileBudget(check)};
}

absl::Status ConstraintCheck::Compile(const Constraint& constraint) {
  if (constraint.kind == Constraint::Kind::kNone) return absl::OkStatus();
  MOE_RETURN_IF_ERROR(budget_.SpendBytes(constraint.text.size()));
  const std::string hash = HashOf(constraint);
  if (const std::optional<absl::Status> known = known_.Find(hash)) return *known;
  absl::Status result = text::grammar::CompileConstraint(constraint, budget_).status();
  if (budget_.is_kept()) known_.Note(hash, result);
  return result;
}

}  // namespace moestro::router
