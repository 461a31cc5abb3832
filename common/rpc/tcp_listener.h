// Accepts a server's clients. gRPC 1.51's own listener stops accepting for good once the process runs out of file
// descriptors. This one reserves some, closes connections without a descriptor, and continues.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace moestro {

class TcpListener {
 public:
  // address: "host:port", "[::]:port"; port 0 = any. Binds every address of the host. UNAVAILABLE names an address that
  // cannot be bound. `first_bytes`: what Answers sends, if a server waits for its client; empty: the server begins.
  static absl::StatusOr<std::unique_ptr<TcpListener>> Bind(const std::string& address, std::string first_bytes = "");
  ~TcpListener();  // stops accepting

  int port() const { return port_; }

  // From now on, a listener thread passes each connection as a descriptor to `handle`, which owns it. Call once.
  void Serve(std::function<void(int descriptor)> handle);

  // Whether a connection to ourselves is accepted, and answered or refused, within that time. The kernel would still
  // accept it if the listener had died. Also true without a free descriptor for the test.
  bool Answers(std::chrono::milliseconds timeout) const;

 private:
  TcpListener(std::string address, std::string first_bytes)
      : address_(std::move(address)), first_bytes_(std::move(first_bytes)) {}
  absl::Status BindAll();
  void Loop();
  void Accept(int listening);

  const std::string address_;
  const std::string first_bytes_;
  int port_ = 0;
  std::vector<int> listening_;
  int ending_[2] = {-1, -1};  // a pipe: readable when the listener ends
  std::function<void(int descriptor)> handle_;
  std::chrono::steady_clock::time_point warned_{};
  std::thread thread_;
};

}  // namespace moestro
