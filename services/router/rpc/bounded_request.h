// Requests of clients, parsed only after everything in them that can grow has been counted on the wire: a list of two
// bytes an element takes fifty times as many once it is parsed.
#pragma once

#include <grpcpp/impl/serialization_traits.h>
#include <grpcpp/support/byte_buffer.h>

#include <utility>

#include "absl/status/statusor.h"
#include "common/base/status.h"
#include "services/router/text/served_model.h"

namespace google::protobuf {
class Message;
}

namespace moestro {

// A request as a handler gets it: its bytes, which are given up once they are read, for the handler may run for an
// hour.
class RequestBytes {
 public:
  grpc::ByteBuffer Take() const {
    grpc::ByteBuffer taken;
    taken.Swap(&bytes_);
    return taken;
  }

 private:
  friend class grpc::SerializationTraits<RequestBytes>;
  mutable grpc::ByteBuffer bytes_;  // a handler's request is const
};

// Every text and every repeated field is within its bound for `model` (request_bounds.h), and fields that the type does
// not know, which a parser keeps, have a few KiB. INVALID_ARGUMENT names field and bound, or says that the bytes are no
// such message. `request` means nothing after an error.
absl::Status ParseBounded(grpc::ByteBuffer bytes, const ServedModel& model, google::protobuf::Message& request);

template <typename Request>
absl::StatusOr<Request> ParseBounded(grpc::ByteBuffer bytes, const ServedModel& model) {
  Request request;
  MOE_RETURN_IF_ERROR(ParseBounded(std::move(bytes), model, request));
  return request;
}

}  // namespace moestro

// How gRPC makes one: it takes the bytes over.
template <>
class grpc::SerializationTraits<moestro::RequestBytes> {
 public:
  static grpc::Status Deserialize(grpc::ByteBuffer* bytes, moestro::RequestBytes* request) {
    request->bytes_.Swap(bytes);
    return grpc::Status::OK;
  }
};
