#include <google/protobuf/descriptor.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/message.h>
#include <google/protobuf/wire_format_lite.h>
#include <grpcpp/support/proto_buffer_reader.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "services/router/request/request_bounds.h"
#include "services/router/rpc/bounded_request.h"

namespace moestro::router {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::internal::WireFormatLite;
using google::protobuf::io::CodedInputStream;

// Room for fields of a newer client. A parser keeps unknown fields at up to sixteen times their size.
constexpr int kMaxUnknownBytes = 4096;

// The fields that can grow in the requests of moestro.v1.InferenceService, by path in the message.
constexpr struct {
  std::string_view path;
  Quantity quantity;
  std::optional<Quantity> each = std::nullopt;  // of a list of texts: the bytes of one
} kGrowing[] = {
    {"prompt", Quantity::kTextBytes},
    {"text", Quantity::kTextBytes},
    {"token_ids.ids", Quantity::kTokenIds},
    {"ids", Quantity::kTokenIds},
    {"chat.messages", Quantity::kMessages},
    {"chat.messages.role", Quantity::kTextBytes},
    {"chat.messages.content", Quantity::kTextBytes},
    {"chat.messages.tool_calls", Quantity::kToolCalls},
    {"chat.messages.tool_calls.id", Quantity::kTextBytes},
    {"chat.messages.tool_calls.name", Quantity::kTextBytes},
    {"chat.messages.tool_calls.arguments", Quantity::kTextBytes},
    {"chat.messages.tool_call_id", Quantity::kTextBytes},
    {"chat.messages.name", Quantity::kTextBytes},
    {"chat.messages.reasoning_content", Quantity::kTextBytes},
    {"chat.tools", Quantity::kTextBytes},
    {"chat.template_flags", Quantity::kTextBytes},
    {"stop_ids", Quantity::kStopIds},
    {"stop", Quantity::kStopTexts, Quantity::kStopTextBytes},
    {"logit_bias", Quantity::kLogitBiases},
    {"cache_scope", Quantity::kCacheScopeBytes},
    {"request_id", Quantity::kRequestIdBytes},
    {"constraint.text", Quantity::kConstraintBytes},
};

absl::Status Malformed(const Descriptor& type) {
  return absl::InvalidArgumentError(
      absl::StrCat("the bytes are not a ", type.full_name(), ": malformed, or a text in it is not UTF-8"));
}

bool IsText(const FieldDescriptor& field) {
  return field.type() == FieldDescriptor::TYPE_STRING || field.type() == FieldDescriptor::TYPE_BYTES;
}

// Walks a message as its parser will, and keeps nothing. The walk of a malformed message may end before the parser
// does; whatever the parser has made by then has been counted.
class WireCounter {
 public:
  WireCounter(const ServedModel& model, const Descriptor& type) : model_(model), type_(type) {}

  absl::Status Count(CodedInputStream& in) { return CountMessage(in, type_, ""); }

 private:
  // The total of a field over all its places in the message.
  struct Growth {
    std::string path;
    Quantity quantity = Quantity::kTextBytes;
    std::optional<Quantity> each;
    size_t amount = 0;
  };

  absl::Status CountMessage(CodedInputStream& in, const Descriptor& type, const std::string& prefix) {
    while (const uint32_t tag = in.ReadTag()) {
      const FieldDescriptor* field = type.FindFieldByNumber(WireFormatLite::GetTagFieldNumber(tag));
      const WireFormatLite::WireType wire = WireFormatLite::GetTagWireType(tag);
      if (field == nullptr || !Fits(*field, wire)) {
        MOE_RETURN_IF_ERROR(SkipUnknown(in, tag));
      } else if (wire == WireFormatLite::WIRETYPE_LENGTH_DELIMITED) {
        MOE_RETURN_IF_ERROR(CountDelimited(in, *field, prefix));
      } else {
        if (field->is_repeated()) MOE_RETURN_IF_ERROR(Add(*field, prefix, 1));
        if (!WireFormatLite::SkipField(&in, tag)) return Malformed(type_);
      }
    }
    return in.ConsumedEntireMessage() ? absl::OkStatus() : Malformed(type_);
  }

  // If the wire type does not fit, a parser treats the field as unknown.
  static bool Fits(const FieldDescriptor& field, WireFormatLite::WireType wire) {
    const auto own = WireFormatLite::WireTypeForFieldType(static_cast<WireFormatLite::FieldType>(field.type()));
    return wire == own || (field.is_packable() && wire == WireFormatLite::WIRETYPE_LENGTH_DELIMITED);
  }

  absl::Status CountDelimited(CodedInputStream& in, const FieldDescriptor& field, const std::string& prefix) {
    int length = 0;
    if (!in.ReadVarintSizeAsInt(&length)) return Malformed(type_);
    if (IsText(field)) {
      MOE_RETURN_IF_ERROR(AddText(field, prefix, static_cast<size_t>(length)));
      return in.Skip(length) ? absl::OkStatus() : Malformed(type_);
    }
    if (field.message_type() == nullptr) return CountPacked(in, field, prefix, length);
    if (field.is_repeated()) MOE_RETURN_IF_ERROR(Add(field, prefix, 1));
    const CodedInputStream::Limit limit = in.PushLimit(length);
    MOE_RETURN_IF_ERROR(CountMessage(in, *field.message_type(), absl::StrCat(prefix, field.name(), ".")));
    in.PopLimit(limit);
    return absl::OkStatus();
  }

  // Each varint ends with a byte below 0x80. Fixed-size elements are counted as bytes: no request has any.
  absl::Status CountPacked(CodedInputStream& in, const FieldDescriptor& field, const std::string& prefix, int length) {
    const void* data = nullptr;
    for (int size = 0; length > 0; length -= size) {
      if (!in.GetDirectBufferPointer(&data, &size)) return Malformed(type_);
      size = std::min(size, length);
      const auto* bytes = static_cast<const uint8_t*>(data);
      const auto ends = std::count_if(bytes, bytes + size, [](uint8_t byte) { return byte < 0x80; });
      MOE_RETURN_IF_ERROR(Add(field, prefix, static_cast<size_t>(ends)));
      in.Skip(size);
    }
    return absl::OkStatus();
  }

  absl::Status SkipUnknown(CodedInputStream& in, uint32_t tag) {
    const int begin = in.CurrentPosition();
    if (!WireFormatLite::SkipField(&in, tag)) return Malformed(type_);
    unknown_bytes_ += in.CurrentPosition() - begin + 1;
    if (unknown_bytes_ <= kMaxUnknownBytes) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("fields that ", type_.full_name(), " does not have: more than ", kMaxUnknownBytes, " bytes"));
  }

  absl::Status Add(const FieldDescriptor& field, const std::string& prefix, size_t amount) {
    MOE_ASSIGN_OR_RETURN(Growth * growth, Find(field, prefix));
    growth->amount += amount;
    return CheckBound(model_, growth->quantity, growth->path, growth->amount);
  }

  absl::Status AddText(const FieldDescriptor& field, const std::string& prefix, size_t bytes) {
    MOE_ASSIGN_OR_RETURN(const Growth* growth, Find(field, prefix));
    if (!growth->each) return Add(field, prefix, bytes);
    MOE_RETURN_IF_ERROR(CheckBound(model_, *growth->each, growth->path, bytes));
    return Add(field, prefix, 1);
  }

  absl::StatusOr<Growth*> Find(const FieldDescriptor& field, const std::string& prefix) {
    if (const auto found = growth_.find(&field); found != growth_.end()) return &found->second;
    const std::string path = absl::StrCat(prefix, field.name());
    const auto* known = std::ranges::find(kGrowing, path, [](const auto& growing) { return growing.path; });
    if (known == std::end(kGrowing)) return absl::InternalError(path + ": has no bound");
    return &growth_.emplace(&field, Growth{path, known->quantity, known->each}).first->second;
  }

  const ServedModel& model_;
  const Descriptor& type_;
  // By field: no type appears at two places of one request.
  std::map<const FieldDescriptor*, Growth> growth_;
  int unknown_bytes_ = 0;
};

}  // namespace

absl::Status ParseBounded(grpc::ByteBuffer bytes, const ServedModel& model, google::protobuf::Message& request) {
  const Descriptor& type = *request.GetDescriptor();
  {
    grpc::ProtoBufferReader reader(&bytes);
    CodedInputStream in(&reader);
    MOE_RETURN_IF_ERROR(WireCounter(model, type).Count(in));
  }
  grpc::ProtoBufferReader reader(&bytes);
  return request.ParseFromZeroCopyStream(&reader) ? absl::OkStatus() : Malformed(type);
}

}  // namespace moestro::router
