#include "common/rpc/tcp_listener.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/exceptions.h"
#include "common/base/status.h"
#include "common/telemetry/log.h"

namespace moestro {
namespace {

constexpr int kBacklog = 1024;

// A new descriptor gets the lowest free number, so a high number means that at least as many are in use. Reserves an
// eighth for the process's own use: channels, logs, sockets of other listeners.
bool IsAmongTheLast(int descriptor) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return false;
  return static_cast<rlim_t>(descriptor) >= limit.rlim_cur - limit.rlim_cur / 8;
}

absl::Status Problem(const std::string& address, const char* why) {
  return absl::UnavailableError(absl::StrCat("cannot listen on ", address, ": ", why));
}

int PortOf(const sockaddr_storage& address) {
  return ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6&>(address).sin6_port
                                             : reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

void SetPort(sockaddr* address, int port) {
  const in_port_t number = htons(static_cast<uint16_t>(port));
  if (address->sa_family == AF_INET6) {
    reinterpret_cast<sockaddr_in6*>(address)->sin6_port = number;
  } else {
    reinterpret_cast<sockaddr_in*>(address)->sin_port = number;
  }
}

// Returns a listening socket, or -1 with errno.
int Listen(const addrinfo& where) {
  const int descriptor = socket(where.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (descriptor < 0) return -1;
  const int on = 1, off = 0;
  setsockopt(descriptor, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));  // accepted sockets inherit it
  if (where.ai_family == AF_INET6) setsockopt(descriptor, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
  if (bind(descriptor, where.ai_addr, where.ai_addrlen) == 0 && listen(descriptor, kBacklog) == 0) return descriptor;
  const int error = errno;
  close(descriptor);
  errno = error;
  return -1;
}

}  // namespace

absl::StatusOr<std::unique_ptr<TcpListener>> TcpListener::Bind(const std::string& address, std::string first_bytes) {
  std::unique_ptr<TcpListener> listener(new TcpListener(address, std::move(first_bytes)));
  MOE_RETURN_IF_ERROR(listener->BindAll());
  return listener;
}

absl::Status TcpListener::BindAll() {
  const size_t colon = address_.rfind(':');
  if (colon == std::string::npos) return Problem(address_, "use HOST:PORT");
  std::string host = address_.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  addrinfo hints{};
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int rc = getaddrinfo(host.c_str(), address_.c_str() + colon + 1, &hints, &found);
  if (rc != 0) return Problem(address_, gai_strerror(rc));
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, freeaddrinfo);
  for (const addrinfo* each = found; each != nullptr; each = each->ai_next) {
    if (port_ != 0) SetPort(each->ai_addr, port_);
    const int descriptor = Listen(*each);
    if (descriptor < 0) return Problem(address_, strerror(errno));
    listening_.push_back(descriptor);
    sockaddr_storage bound{};
    socklen_t bytes = sizeof(bound);
    if (getsockname(descriptor, reinterpret_cast<sockaddr*>(&bound), &bytes) != 0) {
      return Problem(address_, strerror(errno));
    }
    port_ = PortOf(bound);
  }
  return pipe2(ending_, O_CLOEXEC) == 0 ? absl::OkStatus() : Problem(address_, strerror(errno));
}

TcpListener::~TcpListener() {
  if (ending_[1] >= 0) close(ending_[1]);
  if (thread_.joinable()) thread_.join();
  for (const int descriptor : listening_) close(descriptor);
  if (ending_[0] >= 0) close(ending_[0]);
}

void TcpListener::Serve(std::function<void(int descriptor)> handle) {
  handle_ = std::move(handle);
  thread_ = std::thread([this] { Loop(); });
}

void TcpListener::Loop() {
  std::vector<pollfd> waiting{{.fd = ending_[0], .events = 0, .revents = 0}};
  for (const int descriptor : listening_) waiting.push_back({.fd = descriptor, .events = POLLIN, .revents = 0});
  while (true) {
    if (poll(waiting.data(), waiting.size(), -1) < 0) continue;
    if (waiting[0].revents != 0) return;
    for (size_t i = 1; i < waiting.size(); ++i) {
      if ((waiting[i].revents & POLLIN) != 0) Accept(waiting[i].fd);
    }
  }
}

void TcpListener::Accept(int listening) {
  const int descriptor = accept4(listening, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
  const bool none_left = descriptor < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM);
  if (descriptor < 0 && !none_left) return;  // the client is gone
  if (!none_left && !IsAmongTheLast(descriptor)) {
    const absl::Status handled = CatchExceptions([&] {
      handle_(descriptor);
      return absl::OkStatus();
    });
    if (!handled.ok()) LogError("a connection: {}", std::string(handled.message()));
    return;
  }
  const auto now = std::chrono::steady_clock::now();
  if (now - warned_ > std::chrono::minutes(1)) {
    warned_ = now;
    LogWarning("{}: connections are refused: too few file descriptors are left (ulimit -n)", address_);
  }
  if (none_left) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));  // the connection waits meanwhile
  } else {
    close(descriptor);
  }
}

bool TcpListener::Answers(std::chrono::milliseconds timeout) const {
  sockaddr_storage address{};
  socklen_t bytes = sizeof(address);
  if (getsockname(listening_.front(), reinterpret_cast<sockaddr*>(&address), &bytes) != 0) return false;
  const int descriptor = socket(address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (descriptor < 0) return true;
  // The wildcard address reaches ourselves. An accepting server sends the first HTTP/2 frame, or closes.
  const bool begun =
      connect(descriptor, reinterpret_cast<const sockaddr*>(&address), bytes) == 0 || errno == EINPROGRESS;
  const auto becomes = [&](short event) {
    pollfd waiting{.fd = descriptor, .events = event, .revents = 0};
    return poll(&waiting, 1, static_cast<int>(timeout.count())) == 1;
  };
  const auto sent = [&] {
    return becomes(POLLOUT) && send(descriptor, first_bytes_.data(), first_bytes_.size(), MSG_NOSIGNAL) ==
                                   static_cast<ssize_t>(first_bytes_.size());
  };
  const bool answered = begun && (first_bytes_.empty() || sent()) && becomes(POLLIN);
  int error = 0;
  bytes = sizeof(error);
  getsockopt(descriptor, SOL_SOCKET, SO_ERROR, &error, &bytes);
  close(descriptor);
  return answered && error != ECONNREFUSED;
}

}  // namespace moestro
