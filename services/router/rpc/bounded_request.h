// Client requests that are parsed only after everything in them that can grow has been counted on the wire. Reason: a
// list element of two bytes takes fifty times as much memory once it is parsed.
#pragma once

#include <grpcpp/impl/serialization_traits.h>
#include <grpcpp/support/byte_buffer.h>

#include <cstddef>
#include <utility>

#include "absl/status/statusor.h"
#include "common/base/status.h"
#include "services/router/text/served_model.h"

namespace google::protobuf {
class Message;
}

namespace moestro::router {

// A request as a handler gets it: its bytes. Take releases them, because the handler may run for an hour.
class RequestBytes {
 public:
  size_t size() const { return bytes_.Length(); }  // 0 after Take
  grpc::ByteBuffer Take() const {
    grpc::ByteBuffer taken;
    taken.Swap(&bytes_);
    return taken;
  }

 private:
  friend class grpc::SerializationTraits<RequestBytes>;
  mutable grpc::ByteBuffer bytes_;  // a handler's request is const
};

// Parses `bytes` if every text and every repeated field is within its bound for `model` (request_bounds.h). Fields that
// the type does not have, which a parser keeps, may take a few KiB. INVALID_ARGUMENT names field and bound, or says
// that the bytes are not such a message. `request` is unspecified after an error.
absl::Status ParseBounded(grpc::ByteBuffer bytes, const ServedModel& model, google::protobuf::Message& request);

template <typename Request>
absl::StatusOr<Request> ParseBounded(grpc::ByteBuffer bytes, const ServedModel& model) {
  Request request;
  MOE_RETURN_IF_ERROR(ParseBounded(std::move(bytes), model, request));
  return request;
}

}  // namespace moestro::router

// gRPC constructs one by moving the bytes out of its buffer.
template <>
class grpc::SerializationTraits<moestro::router::RequestBytes> {
 public:
  static grpc::Status Deserialize(grpc::ByteBuffer* bytes, moestro::router::RequestBytes* request) {
    request->bytes_.Swap(bytes);
    return grpc::Status::OK;
  }
};
