#include "common/platform/instance.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace moestro {
namespace {

constexpr size_t kMaxInstanceLength = 32;
// 48 bits of the fingerprint distinguish the models of one machine; the segment's header has the whole fingerprint.
constexpr size_t kFingerprintDigits = 12;

bool IsInstanceCharacter(char c) { return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_'; }

}  // namespace

absl::Status ValidateInstanceName(const std::string& instance) {
  if (instance.empty() || instance.size() > kMaxInstanceLength || !std::ranges::all_of(instance, IsInstanceCharacter)) {
    return absl::InvalidArgumentError(absl::StrCat("instance name '", absl::CEscape(instance), "' must be 1 to ",
                                                   kMaxInstanceLength, " letters, digits, '-' or '_'"));
  }
  return absl::OkStatus();
}

std::string WeightSegmentName(const std::string& instance, const std::string& fingerprint, uint64_t generation) {
  return absl::StrCat(InstancePrefix(instance), "weights.", fingerprint.substr(0, kFingerprintDigits), ".", generation);
}

std::string KvPoolName(const std::string& instance, uint64_t epoch) {
  return absl::StrCat(InstancePrefix(instance), "kv.", epoch);
}

std::string InstancePrefix(const std::string& instance) { return absl::StrCat(kSharedMemoryPrefix, instance, "."); }

}  // namespace moestro
