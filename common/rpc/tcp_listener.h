// Accepts a server's clients. gRPC 1.51's own listener accepts nobody any more, for good, once the process has run out
// of file descriptors; this one keeps some back, closes the connections for which none is left, and goes on.
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
  // address: "host:port", "[::]:port"; port 0 = any. On every address of the host. UNAVAILABLE names the address that
  // cannot be had.
  static absl::StatusOr<std::unique_ptr<TcpListener>> Bind(const std::string& address);
  ~TcpListener();  // accepts no more

  int port() const { return port_; }

  // From now on each connection is handed over as a descriptor that the handler owns, from a thread of the listener's.
  // Call once.
  void Serve(std::function<void(int descriptor)> handle);

  // Whether a connection to ourselves is accepted, and answered or refused, within that time: with a listener that has
  // died the kernel would still take it. True, too, if we lack the descriptor to ask.
  bool Answers(std::chrono::milliseconds timeout) const;

 private:
  explicit TcpListener(std::string address) : address_(std::move(address)) {}
  absl::Status BindAll();
  void Loop();
  void Accept(int listening);

  const std::string address_;
  int port_ = 0;
  std::vector<int> listening_;
  int ending_[2] = {-1, -1};  // a pipe: readable when the listener ends
  std::function<void(int descriptor)> handle_;
  std::chrono::steady_clock::time_point warned_{};
  std::thread thread_;
};

}  // namespace moestro
