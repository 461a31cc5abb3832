#include "common/rpc/reflection_rpc.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/descriptor.pb.h>

#include <set>
#include <utility>

#include "grpc/health/v1/health.grpc.pb.h"

namespace moestro {
namespace {

using google::protobuf::DescriptorPool;
using google::protobuf::FileDescriptor;
using grpc::reflection::v1alpha::FileDescriptorResponse;
using grpc::reflection::v1alpha::ServerReflection;
using grpc::reflection::v1alpha::ServerReflectionRequest;
using grpc::reflection::v1alpha::ServerReflectionResponse;

// A response repeats the request; names are shorter.
constexpr size_t kMostRequestBytes = 4096;

// Appends the file after the files that it imports, each once.
void AddWithImports(const FileDescriptor& file, std::set<const FileDescriptor*>& added, FileDescriptorResponse& reply) {
  if (!added.insert(&file).second) return;
  for (int i = 0; i < file.dependency_count(); ++i) AddWithImports(*file.dependency(i), added, reply);
  google::protobuf::FileDescriptorProto proto;
  file.CopyTo(&proto);
  proto.SerializeToString(reply.add_file_descriptor_proto());
}

void SetFile(const FileDescriptor* file, const std::string& asked, ServerReflectionResponse& response) {
  if (file == nullptr) {
    response.mutable_error_response()->set_error_code(grpc::StatusCode::NOT_FOUND);
    response.mutable_error_response()->set_error_message("no '" + asked + "' here");
    return;
  }
  std::set<const FileDescriptor*> added;
  AddWithImports(*file, added, *response.mutable_file_descriptor_response());
}

std::vector<std::string> WithStandard(std::vector<std::string> services) {
  services.emplace_back(grpc::health::v1::Health::service_full_name());
  services.emplace_back(ServerReflection::service_full_name());
  return services;
}

}  // namespace

// One call: reads a request, writes its response, and so on. Owns itself until OnDone.
class ReflectionRpc::Call final : public grpc::ServerBidiReactor<ServerReflectionRequest, ServerReflectionResponse> {
 public:
  explicit Call(const ReflectionRpc& service) : service_(service) { StartRead(&request_); }

  void OnReadDone(bool ok) override {
    if (!ok) return Finish(grpc::Status::OK);
    if (request_.ByteSizeLong() > kMostRequestBytes) {
      return Finish(grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "the request is too long"));
    }
    response_ = service_.Answer(request_);
    StartWrite(&response_);
  }
  void OnWriteDone(bool ok) override {
    if (!ok) return Finish(grpc::Status(grpc::StatusCode::CANCELLED, "the caller went away"));
    StartRead(&request_);
  }
  void OnDone() override { delete this; }

 private:
  const ReflectionRpc& service_;
  ServerReflectionRequest request_;
  ServerReflectionResponse response_;
};

ReflectionRpc::ReflectionRpc(std::vector<std::string> services) : services_(WithStandard(std::move(services))) {}

grpc::ServerBidiReactor<ServerReflectionRequest, ServerReflectionResponse>* ReflectionRpc::ServerReflectionInfo(
    grpc::CallbackServerContext*) {
  return new Call(*this);
}

ServerReflectionResponse ReflectionRpc::Answer(const ServerReflectionRequest& request) const {
  const DescriptorPool& pool = *DescriptorPool::generated_pool();
  ServerReflectionResponse response;
  response.set_valid_host(request.host());
  *response.mutable_original_request() = request;
  switch (request.message_request_case()) {
    case ServerReflectionRequest::kListServices:
      for (const std::string& name : services_) {
        response.mutable_list_services_response()->add_service()->set_name(name);
      }
      break;
    case ServerReflectionRequest::kFileByFilename:
      SetFile(pool.FindFileByName(request.file_by_filename()), request.file_by_filename(), response);
      break;
    case ServerReflectionRequest::kFileContainingSymbol:
      SetFile(pool.FindFileContainingSymbol(request.file_containing_symbol()), request.file_containing_symbol(),
              response);
      break;
    case ServerReflectionRequest::kFileContainingExtension:
      SetFile(nullptr, request.file_containing_extension().containing_type(), response);
      break;
    case ServerReflectionRequest::kAllExtensionNumbersOfType:
      if (pool.FindMessageTypeByName(request.all_extension_numbers_of_type()) == nullptr) {
        SetFile(nullptr, request.all_extension_numbers_of_type(), response);
      } else {
        response.mutable_all_extension_numbers_response()->set_base_type_name(request.all_extension_numbers_of_type());
      }
      break;
    case ServerReflectionRequest::MESSAGE_REQUEST_NOT_SET:
      response.mutable_error_response()->set_error_code(grpc::StatusCode::INVALID_ARGUMENT);
      response.mutable_error_response()->set_error_message("the request is empty");
      break;
  }
  return response;
}

}  // namespace moestro
