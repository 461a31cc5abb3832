#include "common/rpc/status.h"

#include <algorithm>
#include <string>

namespace moestro {

grpc::Status ToGrpc(const absl::Status& status) {
  // Both enums use the canonical codes with the same numbers.
  if (status.ok()) return grpc::Status::OK;
  constexpr size_t kMaxMessage = 1024;
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()),
                      std::string(status.message().substr(0, kMaxMessage)));
}

absl::Status FromGrpc(const grpc::Status& status, const char* peer) {
  if (status.ok()) return absl::OkStatus();
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()),
                      std::string(peer) + ": " + status.error_message());
}

bool IsPeerGone(const absl::Status& status) {
  if (status.code() == absl::StatusCode::kUnavailable) return true;
  if (status.code() != absl::StatusCode::kUnknown && status.code() != absl::StatusCode::kInternal &&
      status.code() != absl::StatusCode::kCancelled) {
    return false;
  }
  // A connection that breaks at the wrong moment yields one of these codes, and only the text identifies it.
  static constexpr const char* kBroken[] = {"Stream removed",   "Socket closed", "RST_STREAM",
                                            "Connection reset", "Broken pipe",   "Cancelling all calls"};
  const std::string message(status.message());
  return std::ranges::any_of(kBroken, [&](const char* text) { return message.find(text) != std::string::npos; });
}

}  // namespace moestro
