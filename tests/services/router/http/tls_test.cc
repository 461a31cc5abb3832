// The HTTP server behind TLS; tests/integration/test_tls.py has clients with certificates.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <boost/asio/connect.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/ssl.hpp>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "services/router/http/server.h"
#include "tests/common/access/test_certificate.h"
#include "tests/services/router/fake_node.h"

namespace moestro::router {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;
namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

class TlsTest : public ::testing::Test {
 protected:
  TlsTest() {
    spdlog::set_level(spdlog::level::off);
    access::WriteCertificate(files_, 1);
  }
  ~TlsTest() override {
    std::filesystem::remove(files_.certificate);
    std::filesystem::remove(files_.key);
  }

  void Start(HttpOptions options = {}) {
    ASSERT_TRUE(tls_.Load().ok());
    options.address = "127.0.0.1:0";
    options.tls = &tls_;
    server_ = std::make_unique<HttpServer>(options, clients_, registry_);
    Endpoints endpoints;
    endpoints.Add({.method = "POST", .path = "/echo", .handle = [](HttpRequest& request, Response& response) {
                     MOE_RETURN_IF_ERROR(response.Begin({}));
                     return response.Write(request.body.text);
                   }});
    ASSERT_TRUE(server_->Start(std::move(endpoints)).ok());
  }
  tcp::endpoint Address() const {
    return {asio::ip::make_address("127.0.0.1"), static_cast<uint16_t>(server_->port())};
  }
  std::string Metrics() const { return registry_.Text(); }

  template <typename Stream>
  static std::string ReadAll(Stream& stream, error_code& error) {
    std::string text;
    asio::read(stream, asio::dynamic_buffer(text), error);
    return text;
  }

  const access::TlsFiles files_{.certificate = absl::StrCat(::testing::TempDir(), "http_tls_", getpid(), ".pem"),
                                .key = absl::StrCat(::testing::TempDir(), "http_tls_", getpid(), ".key"),
                                .client_ca = ""};
  access::TlsContext tls_{files_};
  testing::FakeRequestClock clock_;
  MetricsRegistry registry_{"router"};
  prometheus::Counter stalled_, behind_;
  SlowClients clients_{{}, clock_, stalled_, behind_};
  std::unique_ptr<HttpServer> server_;
  asio::io_context context_;
  asio::ssl::context client_tls_{asio::ssl::context::tls_client};
};

// Of many records in both directions; then the server says that nothing follows.
TEST_F(TlsTest, Echoes) {
  Start();
  asio::ssl::stream<tcp::socket> client(context_, client_tls_);
  client.next_layer().connect(Address());
  client.handshake(asio::ssl::stream_base::client);
  const std::string body(1 << 20, 'x');
  asio::write(client,
              asio::buffer(absl::StrCat("POST /echo HTTP/1.0\r\nContent-Length: ", body.size(), "\r\n\r\n", body)));
  error_code error;
  EXPECT_THAT(ReadAll(client, error), EndsWith("\r\n\r\n" + body));
  EXPECT_EQ(error, asio::error::eof) << "not cut off: " << error.message();
}

TEST_F(TlsTest, PlainHttpGetsAnAnswer) {
  Start();
  tcp::socket client(context_);
  client.connect(Address());
  asio::write(client, asio::buffer(std::string_view("GET /health HTTP/1.1\r\nHost: x\r\n\r\n")));
  error_code error;
  const std::string reply = ReadAll(client, error);
  EXPECT_THAT(reply, StartsWith("HTTP/1.1 400 Bad Request\r\n"));
  EXPECT_THAT(reply, HasSubstr("use https://"));
  for (const char* field : {"Date: ", "x-request-id: req_", "Connection: close\r\n", "Content-Length: "}) {
    EXPECT_THAT(reply, HasSubstr(absl::StrCat("\r\n", field)));
  }
}

TEST_F(TlsTest, WhatIsNoHandshakeEndsTheConnection) {
  Start();
  for (const std::string& sent : {std::string("\x16\x03\x01\xff\xff garbage"), std::string(64, '\0')}) {
    tcp::socket client(context_);
    client.connect(Address());
    asio::write(client, asio::buffer(sent));
    error_code error;
    client.shutdown(tcp::socket::shutdown_send, error);  // the server may have closed it
    ReadAll(client, error);
    EXPECT_TRUE(error);
  }
}

TEST_F(TlsTest, AHandshakeThatHangsIsDropped) {
  Start({.limits = {.header = std::chrono::milliseconds(1)}});
  for (const std::string& sent : {std::string(), std::string("\x16\x03\x01\x02")}) {
    tcp::socket client(context_);
    client.connect(Address());
    asio::write(client, asio::buffer(sent));
    error_code error;
    EXPECT_EQ(ReadAll(client, error), "");
  }
}

TEST_F(TlsTest, ANewCertificateIsForNewConnections) {
  Start();
  const auto serial = [this] {
    asio::ssl::stream<tcp::socket> client(context_, client_tls_);
    client.next_layer().connect(Address());
    client.handshake(asio::ssl::stream_base::client);
    return ASN1_INTEGER_get(X509_get0_serialNumber(SSL_get0_peer_certificate(client.native_handle())));
  };
  EXPECT_EQ(serial(), 1);
  access::WriteCertificate(files_, 2);
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(tls_.Reload().ok());
  EXPECT_EQ(serial(), 2);
}

}  // namespace
}  // namespace moestro::router
