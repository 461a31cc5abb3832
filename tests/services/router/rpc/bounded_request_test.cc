#include "services/router/rpc/bounded_request.h"

#include <gmock/gmock.h>
#include <google/protobuf/descriptor.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <gtest/gtest.h>

#include <functional>

#include "moestro/v1/inference.pb.h"
#include "tests/services/router/tiny_tokenizer.h"

namespace moestro::router {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::io::CodedOutputStream;
using ::testing::HasSubstr;

// Of the longest token, 13 bytes, as many as are counted.
constexpr int kMostBytes = (20 + (256 << 10)) * 13;

ServedModel Model() {
  ServedModel model;
  model.max_context_tokens = 20;
  model.text = *ModelText::Create(
      {.tokenizer_json = testing::TinyTokenizerJson(), .chat_template = "", .bos_token = "", .eos_token = ""});
  return model;
}

grpc::ByteBuffer Bytes(const std::string& wire) {
  // In small slices, as it may come.
  std::vector<grpc::Slice> slices;
  const size_t bytes = 7 + wire.size() / 1000;
  for (size_t i = 0; i < wire.size(); i += bytes) slices.emplace_back(wire.substr(i, bytes));
  return grpc::ByteBuffer(slices.data(), slices.size());
}

template <typename Request>
absl::Status Parse(const std::string& wire) {
  const ServedModel model = Model();
  return ParseBounded<Request>(Bytes(wire), model).status();
}
template <typename Request>
absl::Status Parse(const Request& request) {
  return Parse<Request>(request.SerializeAsString());
}

std::string Wire(const std::function<void(CodedOutputStream&)>& write) {
  std::string wire;
  google::protobuf::io::StringOutputStream stream(&wire);
  CodedOutputStream out(&stream);
  write(out);
  out.Trim();
  return wire;
}

void ExpectRefused(const absl::Status& status, const char* words) {
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(words));
}

TEST(BoundedRequestTest, GivesTheMessage) {
  v1::GenerateRequest request;
  request.mutable_chat()->add_messages()->set_role("user");
  request.mutable_chat()->mutable_messages(0)->set_content("hi");
  request.set_temperature(0.5f);
  request.add_stop_ids(-1);
  request.add_stop_ids(300);
  request.set_seed(1);
  request.set_cache_scope(std::string("a\0", 2));
  const ServedModel model = Model();
  const auto parsed = ParseBounded<v1::GenerateRequest>(Bytes(request.SerializeAsString()), model);
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->SerializeAsString(), request.SerializeAsString());
  EXPECT_TRUE(Parse<v1::GenerateRequest>("").ok());
}

TEST(BoundedRequestTest, EverythingThatGrowsIsCounted) {
  struct Case {
    const char* words;
    int most;
    std::function<absl::Status(int)> parse;  // with so many
  };
  const auto generate = [](const std::function<void(v1::GenerateRequest&, int)>& fill) {
    return [fill](int amount) {
      v1::GenerateRequest request;
      fill(request, amount);
      return Parse(request);
    };
  };
  const std::string ids(1000, 1);
  const Case cases[] = {
      {"prompt: has more than 3408132 bytes", kMostBytes,
       generate([](auto& request, int n) { request.set_prompt(std::string(n, 'x')); })},
      {"token_ids.ids: has more than 20 ids", 20, generate([](auto& request, int n) {
         while (n-- > 0) request.mutable_token_ids()->add_ids(-n);
       })},
      {"chat.messages: has more than 20 messages", 20, generate([](auto& request, int n) {
         while (n-- > 0) request.mutable_chat()->add_messages();
       })},
      {"chat.messages.content: has more than 3408132 bytes", kMostBytes, generate([](auto& request, int n) {
         request.mutable_chat()->add_messages()->set_content(std::string(200, 'x'));
         request.mutable_chat()->add_messages()->set_content(std::string(n - 200, 'x'));
       })},
      {"chat.messages.role: has more than 3408132 bytes", kMostBytes,
       generate([](auto& request, int n) { request.mutable_chat()->add_messages()->set_role(std::string(n, 'x')); })},
      {"chat.messages.tool_calls: has more than 20 calls", 20, generate([](auto& request, int n) {
         request.mutable_chat()->add_messages()->add_tool_calls();
         v1::ChatMessage& message = *request.mutable_chat()->add_messages();
         while (n-- > 1) message.add_tool_calls();
       })},
      {"chat.messages.tool_calls.arguments: has more than 3408132 bytes", kMostBytes,
       generate([](auto& request, int n) {
         v1::ChatMessage& message = *request.mutable_chat()->add_messages();
         message.add_tool_calls()->set_arguments(std::string(200, 'x'));
         message.add_tool_calls()->set_arguments(std::string(n - 200, 'x'));
       })},
      {"chat.messages.tool_calls.name: has more than 3408132 bytes", kMostBytes, generate([](auto& request, int n) {
         request.mutable_chat()->add_messages()->add_tool_calls()->set_name(std::string(n, 'x'));
       })},
      {"chat.messages.reasoning_content: has more than 3408132 bytes", kMostBytes, generate([](auto& request, int n) {
         request.mutable_chat()->add_messages()->set_reasoning_content(std::string(n, 'x'));
       })},
      {"chat.tools: has more than 3408132 bytes", kMostBytes,
       generate([](auto& request, int n) { request.mutable_chat()->set_tools(std::string(n, 'x')); })},
      {"chat.template_flags: has more than 3408132 bytes", kMostBytes,
       generate([](auto& request, int n) { request.mutable_chat()->set_template_flags(std::string(n, 'x')); })},
      {"stop_ids: has more than 256 ids", 256, generate([](auto& request, int n) {
         while (n-- > 0) request.add_stop_ids(n * 1000);
       })},
      {"stop: has more than 16 texts", 16, generate([](auto& request, int n) {
         while (n-- > 0) request.add_stop("");
       })},
      {"stop: has more than 256 bytes in one text", 256, generate([](auto& request, int n) {
         request.add_stop(std::string(256, 'x'));
         request.add_stop(std::string(n, 'x'));
       })},
      {"logit_bias: has more than 1024 token ids", 1024, generate([](auto& request, int n) {
         while (n-- > 0) (*request.mutable_logit_bias())[n] = 1;
       })},
      {"request_id: has more than 64 bytes", 64,
       generate([](auto& request, int n) { request.set_request_id(std::string(n, 'x')); })},
      {"constraint.text: has more than 262144 bytes", 262144,
       generate([](auto& request, int n) { request.mutable_constraint()->set_text(std::string(n, 'x')); })},
      {"cache_scope: has more than 64 bytes", 64,
       generate([](auto& request, int n) { request.set_cache_scope(std::string(n, 'x')); })},
      {"text: has more than 3408132 bytes", kMostBytes,
       [](int n) {
         v1::ScoreRequest request;
         request.set_text(std::string(n, 'x'));
         return Parse(request);
       }},
      {"token_ids.ids: has more than 20 ids", 20,
       [](int n) {
         v1::ScoreRequest request;
         while (n-- > 0) request.mutable_token_ids()->add_ids(n);
         return Parse(request);
       }},
      {"chat.messages: has more than 20 messages", 20,
       [](int n) {
         v1::TokenizeRequest request;
         while (n-- > 0) request.mutable_chat()->add_messages();
         return Parse(request);
       }},
      {"ids: has more than 20 ids", 20,
       [](int n) {
         v1::DetokenizeRequest request;
         while (n-- > 0) request.add_ids(n << 20);
         return Parse(request);
       }},
  };
  for (const Case& c : cases) {
    EXPECT_TRUE(c.parse(c.most).ok()) << c.words << ": " << c.parse(c.most);
    ExpectRefused(c.parse(c.most + 1), c.words);
  }
}

// One id a field, as a writer may do it, and both ways mixed.
TEST(BoundedRequestTest, UnpackedListsAreCountedToo) {
  const auto wire = [](int unpacked, int packed) {
    return Wire([&](CodedOutputStream& out) {
      for (int i = 0; i < unpacked; ++i) {
        out.WriteTag(1 << 3);
        out.WriteVarint32(1 << 20);
      }
      v1::DetokenizeRequest rest;
      for (int i = 0; i < packed; ++i) rest.add_ids(i);
      out.WriteString(rest.SerializeAsString());
    });
  };
  EXPECT_TRUE(Parse<v1::DetokenizeRequest>(wire(12, 8)).ok());
  ExpectRefused(Parse<v1::DetokenizeRequest>(wire(12, 9)), "ids: has more than 20 ids");
  ExpectRefused(Parse<v1::DetokenizeRequest>(wire(21, 0)), "ids: has more than 20 ids");
}

// A parser joins the parts of a message that comes in several.
TEST(BoundedRequestTest, PartsOfOneFieldAddUp) {
  v1::GenerateRequest part;
  for (int i = 0; i < 7; ++i) part.mutable_chat()->add_messages();
  const std::string wire = part.SerializeAsString();
  EXPECT_TRUE(Parse<v1::GenerateRequest>(wire + wire).ok());
  ExpectRefused(Parse<v1::GenerateRequest>(wire + wire + wire), "chat.messages: has more than 20 messages");
}

TEST(BoundedRequestTest, BytesAreTakenOnce) {
  RequestBytes request;
  grpc::ByteBuffer received = Bytes("message");
  ASSERT_TRUE(grpc::SerializationTraits<RequestBytes>::Deserialize(&received, &request).ok());
  EXPECT_EQ(request.Take().Length(), 7u);
  EXPECT_FALSE(request.Take().Valid());
}

TEST(BoundedRequestTest, UnknownFieldsHaveAFewKib) {
  const auto wire = [](int count, int field, int wire_type) {
    return Wire([&](CodedOutputStream& out) {
      for (int i = 0; i < count; ++i) {
        out.WriteTag(static_cast<uint32_t>(field << 3 | wire_type));
        out.WriteVarint32(0);  // for wire type 2: an empty string
      }
    });
  };
  // Each is a tag of two bytes, counted as such, and a byte.
  for (const int wire_type : {0, 2}) {
    EXPECT_TRUE(Parse<v1::GenerateRequest>(wire(1000, 100, wire_type)).ok());
    ExpectRefused(Parse<v1::GenerateRequest>(wire(5000, 100, wire_type)),
                  "fields that moestro.v1.GenerateRequest does not have: more than 4096 bytes");
    EXPECT_TRUE(Parse<v1::GetModelRequest>(wire(1000, 1, wire_type)).ok());
    ExpectRefused(Parse<v1::GetModelRequest>(wire(5000, 1, wire_type)), "GetModelRequest does not have");
  }
  // A known number with another type is an unknown field: here a prompt that is a number, and a seed that is a text.
  EXPECT_TRUE(Parse<v1::GenerateRequest>(wire(1000, 1, 0)).ok());
  ExpectRefused(Parse<v1::GenerateRequest>(wire(5000, 1, 0)), "does not have");
  ExpectRefused(Parse<v1::GenerateRequest>(wire(5000, 8, 2)), "does not have");
  const std::string groups = Wire([](CodedOutputStream& out) {
    out.WriteTag(100 << 3 | 3);
    for (int i = 0; i < 5000; ++i) out.WriteString(std::string("\x08\x00", 2));
    out.WriteTag(100 << 3 | 4);
  });
  ExpectRefused(Parse<v1::GenerateRequest>(groups), "does not have");
}

TEST(BoundedRequestTest, WhatIsNoMessageIsRefused) {
  v1::GenerateRequest request;
  request.set_prompt("a prompt");
  const std::string wire = request.SerializeAsString();
  for (size_t size = 1; size < wire.size(); ++size) {
    ExpectRefused(Parse<v1::GenerateRequest>(wire.substr(0, size)), "the bytes are not a moestro.v1.GenerateRequest");
  }
  ExpectRefused(Parse<v1::GenerateRequest>(wire + '\0' + wire), "the bytes are no");
  request.set_prompt("\xFF");
  ExpectRefused(Parse(request), "not UTF-8");
  // A message inside that is longer than what is around it.
  ExpectRefused(Parse<v1::GenerateRequest>(std::string("\x1a\x02\x0a\x05", 4)), "the bytes are no");
}

void CollectGrowing(const Descriptor& type, const std::string& prefix, std::vector<std::string>* paths) {
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor& field = *type.field(i);
    const bool text = field.type() == FieldDescriptor::TYPE_STRING || field.type() == FieldDescriptor::TYPE_BYTES;
    if (text || field.is_repeated()) paths->push_back(prefix + field.name());
    if (field.message_type() != nullptr) CollectGrowing(*field.message_type(), prefix + field.name() + ".", paths);
  }
}

// One of each, alone in a message: a field that somebody adds without a bound is INTERNAL.
TEST(BoundedRequestTest, NoFieldOfAnyRequestIsWithoutABound) {
  const auto expect_bounds = [](auto request) {
    const ServedModel model = Model();
    std::vector<std::string> paths;
    CollectGrowing(*request.GetDescriptor(), "", &paths);
    for (const std::string& path : paths) {
      request.Clear();
      google::protobuf::Message* message = &request;
      for (size_t begin = 0, dot = 0; dot != std::string::npos; begin = dot + 1) {
        dot = path.find('.', begin);
        const FieldDescriptor* field = message->GetDescriptor()->FindFieldByName(path.substr(begin, dot - begin));
        const auto* reflection = message->GetReflection();
        if (field->message_type() != nullptr) {
          message = field->is_repeated() ? reflection->AddMessage(message, field)
                                         : reflection->MutableMessage(message, field);
        } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_STRING) {
          if (field->is_repeated()) {
            reflection->AddString(message, field, "x");
          } else {
            reflection->SetString(message, field, "x");
          }
        } else {
          EXPECT_EQ(field->cpp_type(), FieldDescriptor::CPPTYPE_INT32) << path;
          reflection->AddInt32(message, field, 1);
        }
      }
      const absl::Status status = ParseBounded(Bytes(request.SerializeAsString()), model, request);
      EXPECT_TRUE(status.ok()) << path << ": " << status;
    }
    return paths.size();
  };
  EXPECT_EQ(expect_bounds(v1::GenerateRequest()), 20u);
  EXPECT_EQ(expect_bounds(v1::AbortRequest()), 1u);
  EXPECT_EQ(expect_bounds(v1::ScoreRequest()), 2u);
  EXPECT_EQ(expect_bounds(v1::TokenizeRequest()), 13u);
  EXPECT_EQ(expect_bounds(v1::DetokenizeRequest()), 1u);
  EXPECT_EQ(expect_bounds(v1::GetModelRequest()), 0u);
}

}  // namespace
}  // namespace moestro::router
