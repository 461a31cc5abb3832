#include "services/router/http/server.h"

#include <algorithm>
#include <atomic>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <list>
#include <map>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/telemetry/log.h"
#include "services/router/http/answer_head.h"
#include "services/router/http/shares.h"
#include "services/router/http/tls_transport.h"

namespace moestro::router {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

namespace {

constexpr std::chrono::milliseconds kTick{250};
constexpr std::chrono::milliseconds kPauseWithoutDescriptors{100};

}  // namespace

struct HttpServer::Impl {
  Impl(const HttpOptions& options_in, SlowClients& slow_clients, MetricsRegistry& registry)
      : options(options_in),
        metrics(registry),
        shared{.limits = options.limits,
               .endpoints = endpoints,
               .workers = workers,
               .slow_clients = slow_clients,
               .metrics = metrics,
               .callers = options.callers},
        workers(options.workers),
        acceptor(loop),
        timer(loop) {}

  absl::Status Listen();
  asio::awaitable<void> Accept();
  void Add(tcp::socket socket);
  std::unique_ptr<Transport> MakeTransport(tcp::socket socket) const;
  asio::awaitable<void> TickAll();
  void Sweep(std::chrono::steady_clock::time_point now);
  void NoteOpen() {
    open = clients.size();
    shared.crowded = !options.callers.keyless && open + ReserveForKeys(options.connections) > options.connections;
    metrics.connections.Set(static_cast<double>(clients.size()));
  }

  struct Client {
    std::shared_ptr<Connection> connection;
    std::string network;
  };
  bool MakeRoom(const std::string* network);
  std::list<Client>::iterator Remove(std::list<Client>::iterator client);

  // In this order: the loop's end destroys connections, and the workers' end is before it.
  const HttpOptions options;
  HttpMetrics metrics;
  Endpoints endpoints;
  HttpShared shared;
  asio::io_context loop{1};
  WorkerPool workers;
  tcp::acceptor acceptor;
  asio::steady_timer timer;
  // Used by the loop's thread.
  std::list<Client> clients;
  std::map<std::string, size_t> by_network;
  std::atomic<size_t> open{0};
  std::thread thread;
};

absl::Status HttpServer::Impl::Listen() {
  const size_t colon = options.address.rfind(':');
  const auto failed = [&](const error_code& error) {
    return absl::UnavailableError(absl::StrCat("cannot serve HTTP on ", options.address, ": ", error.message(),
                                               "; choose another --http-address, or off"));
  };
  std::string host = options.address.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  error_code error;
  tcp::resolver resolver(loop);
  const auto found = resolver.resolve(host, options.address.substr(colon + 1), tcp::resolver::passive, error);
  if (error || found.empty()) return failed(error);
  const tcp::endpoint endpoint = found.begin()->endpoint();
  acceptor.open(endpoint.protocol(), error);
  if (!error) acceptor.set_option(tcp::acceptor::reuse_address(true), error);
  if (!error) acceptor.bind(endpoint, error);
  if (!error) acceptor.listen(asio::socket_base::max_listen_connections, error);
  return error ? failed(error) : absl::OkStatus();
}

asio::awaitable<void> HttpServer::Impl::Accept() {
  while (acceptor.is_open()) {
    error_code error;
    tcp::socket socket = co_await acceptor.async_accept(asio::redirect_error(asio::use_awaitable, error));
    if (!error) {
      Add(std::move(socket));
    } else if (acceptor.is_open()) {
      // No descriptors are left. Waiting costs nothing; asking at once would take a whole CPU.
      asio::steady_timer pause(loop, kPauseWithoutDescriptors);
      co_await pause.async_wait(asio::redirect_error(asio::use_awaitable, error));
    }
  }
}

std::unique_ptr<Transport> HttpServer::Impl::MakeTransport(tcp::socket socket) const {
  if (options.tls == nullptr) return std::make_unique<TcpTransport>(std::move(socket));
  return MakeTlsTransport(std::move(socket), options.tls->Current(),
                          [this] { return LastAnswer(400, "this port speaks TLS: use https://", options.callers); });
}

// Closes the connection that is unused for longest, one without a key first; of `network` unless that is null. False if
// all have work.
bool HttpServer::Impl::MakeRoom(const std::string* network) {
  auto oldest = clients.end();
  const auto rank = [](const Client& client) {
    return std::pair(client.connection->had_key(), *client.connection->unused_since());
  };
  for (auto client = clients.begin(); client != clients.end(); ++client) {
    if (!client->connection->unused_since() || (network != nullptr && client->network != *network)) continue;
    if (oldest == clients.end() || rank(*client) < rank(*oldest)) oldest = client;
  }
  if (oldest == clients.end()) return false;
  oldest->connection->Close();
  Remove(oldest);
  return true;
}

std::list<HttpServer::Impl::Client>::iterator HttpServer::Impl::Remove(std::list<Client>::iterator client) {
  const auto network = by_network.find(client->network);
  if (--network->second == 0) by_network.erase(network);
  return clients.erase(client);
}

void HttpServer::Impl::Add(tcp::socket socket) {
  error_code error;
  const tcp::endpoint peer = socket.remote_endpoint(error);
  if (error) return;  // it has gone
  const std::string network = NetworkOf(peer.address());
  const auto of_network = by_network.find(network);
  const size_t count = of_network == by_network.end() ? 0 : of_network->second;
  const bool crowd = !network.empty() && count >= MostOfOneNetwork(options.connections);
  const bool full = clients.size() >= options.connections;
  if ((crowd && !MakeRoom(&network)) || (!crowd && full && !MakeRoom(nullptr))) {
    LogWarning("HTTP: {} connections are open, {} of them from {}: refusing one (--http-connections)", clients.size(),
               count, peer.address().to_string());
    metrics.connections_refused.Increment();
    return;
  }
  ++by_network[network];
  socket.set_option(tcp::no_delay(true), error);
  auto connection = std::make_shared<Connection>(shared, MakeTransport(std::move(socket)), loop.get_executor(),
                                                 peer.address().to_string());
  clients.push_back({connection, network});
  NoteOpen();
  connection->Start();
}

void HttpServer::Impl::Sweep(std::chrono::steady_clock::time_point now) {
  for (auto client = clients.begin(); client != clients.end();) {
    client->connection->Tick(now);
    client = client->connection->open() ? std::next(client) : Remove(client);
  }
  NoteOpen();
}

asio::awaitable<void> HttpServer::Impl::TickAll() {
  while (true) {
    error_code error;
    timer.expires_after(kTick);
    co_await timer.async_wait(asio::redirect_error(asio::use_awaitable, error));
    Sweep(std::chrono::steady_clock::now());
  }
}

HttpServer::HttpServer(const HttpOptions& options, SlowClients& clients, MetricsRegistry& registry)
    : impl_(std::make_unique<Impl>(options, clients, registry)) {}

absl::Status HttpServer::Start(Endpoints endpoints) {
  impl_->metrics.AddEndpoints(endpoints);
  impl_->endpoints = std::move(endpoints);
  MOE_RETURN_IF_ERROR(impl_->Listen());
  Impl* const server = impl_.get();
  asio::co_spawn(
      server->loop, [server]() { return server->Accept(); }, asio::detached);
  asio::co_spawn(
      server->loop, [server]() { return server->TickAll(); }, asio::detached);
  server->thread = std::thread([server] { server->loop.run(); });
  return absl::OkStatus();
}

HttpServer::~HttpServer() {
  if (!impl_->thread.joinable()) return;
  asio::post(impl_->loop, [this] {
    for (const Impl::Client& client : impl_->clients) client.connection->Close();
  });
  asio::post(impl_->loop, [this] { impl_->loop.stop(); });
  impl_->thread.join();
  impl_->clients.clear();
}

int HttpServer::port() const {
  error_code error;
  return impl_->acceptor.local_endpoint(error).port();
}

WorkerPool& HttpServer::workers() { return impl_->workers; }

void HttpServer::BeginDrain() {
  asio::post(impl_->loop, [this] {
    error_code ignored;
    impl_->acceptor.close(ignored);
    impl_->shared.draining = true;
    for (const Impl::Client& client : impl_->clients) client.connection->Drain();
  });
}

void HttpServer::FinishDrain(std::chrono::steady_clock::time_point deadline) {
  while (impl_->open > 0 && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

}  // namespace moestro::router
