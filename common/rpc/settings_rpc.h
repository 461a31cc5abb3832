// Tells a role's settings to whoever may use its unix socket: they name files, which other callers need not know.
#pragma once

#include "common/process/settings.h"
#include "moestro/v1/settings.grpc.pb.h"

namespace moestro {

// Thread-safe.
class SettingsRpc final : public v1::SettingsService::CallbackService {
 public:
  // `settings` must outlive this object.
  explicit SettingsRpc(const Settings& settings) : settings_(settings) {}

  // PERMISSION_DENIED over TCP.
  grpc::ServerUnaryReactor* ListSettings(grpc::CallbackServerContext* context, const v1::ListSettingsRequest* request,
                                         v1::ListSettingsResponse* response) override;

 private:
  const Settings& settings_;
};

}  // namespace moestro
