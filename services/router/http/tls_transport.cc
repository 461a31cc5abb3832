#include "services/router/http/tls_transport.h"

#include <openssl/ssl.h>

#include <boost/asio/ssl/stream.hpp>

namespace moestro::router {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

namespace {

class TlsTransport final : public Transport {
 public:
  TlsTransport(tcp::socket socket, asio::ssl::context context, std::function<std::string()> to_plain_http)
      : stream_(std::make_shared<Stream>(std::move(socket), context)), to_plain_http_(std::move(to_plain_http)) {}

  asio::awaitable<Opening> Open(std::string& why) override {
    error_code error;
    co_await stream_->async_handshake(asio::ssl::stream_base::server, asio::redirect_error(asio::use_awaitable, error));
    if (!error) {
      speaks_tls_ = true;
      co_return Opening::kDone;
    }
    why = error.message();
    if (error == asio::error::eof || error == asio::ssl::error::stream_truncated) co_return Opening::kClosed;
    if (error.category() != asio::error::get_ssl_category()) co_return Opening::kFailed;
    switch (ERR_GET_REASON(static_cast<unsigned long>(error.value()))) {
      case SSL_R_HTTP_REQUEST:
        stream_->next_layer().write_some(asio::buffer(to_plain_http_()), error);
        co_return Opening::kPlainHttp;
      case SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE:
      case SSL_R_CERTIFICATE_VERIFY_FAILED:
        co_return Opening::kClientCertificate;
      default:
        co_return Opening::kFailed;
    }
  }
  asio::awaitable<size_t> Read(asio::mutable_buffer buffer, error_code& error) override {
    co_return co_await stream_->async_read_some(buffer, asio::redirect_error(asio::use_awaitable, error));
  }
  asio::awaitable<void> Write(const std::vector<asio::const_buffer>& buffers, error_code& error) override {
    co_await asio::async_write(*stream_, buffers, asio::redirect_error(asio::use_awaitable, error));
  }
  void ShutdownSend() override {
    SayEnd();
    error_code ignored;
    stream_->next_layer().shutdown(tcp::socket::shutdown_send, ignored);
  }
  void Close() override {
    SayEnd();
    error_code ignored;
    stream_->next_layer().close(ignored);
  }

 private:
  using Stream = asio::ssl::stream<tcp::socket>;

  // Without this alert a client cannot tell an answer's end from a connection that somebody has cut. It leaves at once,
  // unless an answer waits for the client; nobody waits for the client's own.
  void SayEnd() {
    if (!std::exchange(speaks_tls_, false)) return;
    stream_->async_shutdown([stream = stream_](const error_code&) {});
  }

  const std::shared_ptr<Stream> stream_;  // lives until the alert has been dealt with
  const std::function<std::string()> to_plain_http_;
  bool speaks_tls_ = false;
};

}  // namespace

std::unique_ptr<Transport> MakeTlsTransport(tcp::socket socket, const std::shared_ptr<SSL_CTX>& context,
                                            std::function<std::string()> to_plain_http) {
  SSL_CTX_up_ref(context.get());  // the next one takes a reference
  return std::make_unique<TlsTransport>(std::move(socket), asio::ssl::context(context.get()), std::move(to_plain_http));
}

}  // namespace moestro::router
