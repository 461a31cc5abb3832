#include "common/rpc/settings_rpc.h"

#include "absl/strings/match.h"

namespace moestro {
namespace {

v1::Setting::Origin ToProto(Setting::Origin origin) {
  switch (origin) {
    case Setting::Origin::kSet:
      return v1::Setting::ORIGIN_SET;
    case Setting::Origin::kMeasured:
      return v1::Setting::ORIGIN_MEASURED;
    case Setting::Origin::kDerived:
      return v1::Setting::ORIGIN_DERIVED;
    case Setting::Origin::kConstant:
      return v1::Setting::ORIGIN_CONSTANT;
  }
  return v1::Setting::ORIGIN_UNSPECIFIED;
}

}  // namespace

grpc::ServerUnaryReactor* SettingsRpc::ListSettings(grpc::CallbackServerContext* context,
                                                    const v1::ListSettingsRequest*,
                                                    v1::ListSettingsResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  if (!absl::StartsWith(context->peer(), "unix:")) {
    reactor->Finish(grpc::Status(grpc::StatusCode::PERMISSION_DENIED,
                                 "settings are told over the role's unix socket only: RUN_DIR/ROLE.sock"));
    return reactor;
  }
  for (const Setting& setting : settings_.List()) {
    v1::Setting& told = *response->add_settings();
    told.set_name(setting.name);
    told.set_value(setting.value);
    told.set_origin(ToProto(setting.origin));
    told.set_detail(setting.detail);
  }
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

}  // namespace moestro
