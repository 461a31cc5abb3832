// The standard reflection protocol, through which tools like grpcurl discover a server's methods. Not gRPC's own
// service: there each open call occupies a thread, even when idle.
#pragma once

#include <string>
#include <vector>

#include "grpc/reflection/v1alpha/reflection.grpc.pb.h"

namespace moestro {

// Describes what is linked into the binary; there are no extensions. Thread-safe.
class ReflectionRpc final : public grpc::reflection::v1alpha::ServerReflection::CallbackService {
 public:
  // Full names of the server's services, except health and reflection, which every server has.
  explicit ReflectionRpc(std::vector<std::string> services);

  grpc::ServerBidiReactor<grpc::reflection::v1alpha::ServerReflectionRequest,
                          grpc::reflection::v1alpha::ServerReflectionResponse>*
  ServerReflectionInfo(grpc::CallbackServerContext* context) override;

 private:
  class Call;
  grpc::reflection::v1alpha::ServerReflectionResponse Answer(
      const grpc::reflection::v1alpha::ServerReflectionRequest& request) const;

  const std::vector<std::string> services_;
};

}  // namespace moestro
