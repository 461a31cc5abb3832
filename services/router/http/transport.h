// One client's byte stream. Used by the event loop's thread only.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <string>
#include <utility>
#include <vector>

namespace moestro::router {

// How the beginning of a stream went. kTooSlow: somebody closed the stream because it took too long.
enum class Opening { kDone, kPlainHttp, kClientCertificate, kClosed, kTooSlow, kFailed };
inline constexpr size_t kOpenings = 6;

class Transport {
 public:
  virtual ~Transport() = default;
  // Makes the stream ready for Read and Write; call it once, first. `why`: what went wrong, in words.
  virtual boost::asio::awaitable<Opening> Open(std::string& why) = 0;
  // What has arrived; 0 and an error at the end of the stream. One at a time.
  virtual boost::asio::awaitable<size_t> Read(boost::asio::mutable_buffer buffer, boost::system::error_code& error) = 0;
  // All of it. One at a time.
  virtual boost::asio::awaitable<void> Write(const std::vector<boost::asio::const_buffer>& buffers,
                                             boost::system::error_code& error) = 0;
  // Tells the client that nothing follows.
  virtual void ShutdownSend() = 0;
  // Ends what is under way.
  virtual void Close() = 0;
};

class TcpTransport final : public Transport {
 public:
  explicit TcpTransport(boost::asio::ip::tcp::socket socket) : socket_(std::move(socket)) {}

  boost::asio::awaitable<Opening> Open(std::string&) override { co_return Opening::kDone; }
  boost::asio::awaitable<size_t> Read(boost::asio::mutable_buffer buffer, boost::system::error_code& error) override {
    co_return co_await socket_.async_read_some(buffer, boost::asio::redirect_error(boost::asio::use_awaitable, error));
  }
  boost::asio::awaitable<void> Write(const std::vector<boost::asio::const_buffer>& buffers,
                                     boost::system::error_code& error) override {
    co_await boost::asio::async_write(socket_, buffers, boost::asio::redirect_error(boost::asio::use_awaitable, error));
  }
  void ShutdownSend() override {
    boost::system::error_code ignored;
    socket_.shutdown(boost::asio::ip::tcp::socket::shutdown_send, ignored);
  }
  void Close() override {
    boost::system::error_code ignored;
    socket_.close(ignored);
  }

 private:
  boost::asio::ip::tcp::socket socket_;
};

}  // namespace moestro::router
