#include "common/telemetry/metrics.h"

#include <netinet/in.h>
#include <prometheus/collectable.h>
#include <prometheus/exposer.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <exception>
#include <thread>
#include <utility>

#include "common/base/mutex.h"

namespace moestro {

namespace {

// A registry that labels all its series with the model. Thread-safe.
class RegistryOfModel final : public prometheus::Collectable {
 public:
  explicit RegistryOfModel(const prometheus::Registry& registry) : registry_(registry) {}

  void SetModelName(const std::string& name) {
    MutexLock lock(mutex_);
    model_name_ = name;
  }

  std::vector<prometheus::MetricFamily> Collect() const override {
    std::vector<prometheus::MetricFamily> families = registry_.Collect();
    MutexLock lock(mutex_);
    if (model_name_.empty()) return families;
    for (prometheus::MetricFamily& family : families) {
      for (prometheus::ClientMetric& metric : family.metric) metric.label.push_back({"model_name", model_name_});
    }
    return families;
  }

 private:
  const prometheus::Registry& registry_;
  mutable Mutex mutex_;
  std::string model_name_ ABSL_GUARDED_BY(mutex_);
};

// Connects to the port on loopback, and closes.
void Knock(int port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return;
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<uint16_t>(port));
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  static_cast<void>(connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof to));
  close(fd);
}

// The server looks only every two seconds whether it shall stop, or when a client connects.
void Stop(std::unique_ptr<prometheus::Exposer> exposer) {
  const std::vector<int> ports = exposer->GetListeningPorts();
  std::atomic<bool> stopped = false;
  std::thread stop([&] {
    exposer.reset();
    stopped = true;
  });
  while (!stopped) {
    for (const int port : ports) Knock(port);
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  stop.join();
}

}  // namespace

struct MetricsRegistry::Impl {
  std::string role;
  prometheus::Registry registry;
  std::shared_ptr<RegistryOfModel> of_model = std::make_shared<RegistryOfModel>(registry);
  std::unique_ptr<prometheus::Exposer> exposer;
};

MetricsRegistry::MetricsRegistry(const std::string& role) : impl_(std::make_unique<Impl>()) { impl_->role = role; }
MetricsRegistry::~MetricsRegistry() {
  if (impl_->exposer != nullptr) Stop(std::move(impl_->exposer));
}

prometheus::Counter& MetricsRegistry::AddCounter(const std::string& name, const std::string& help,
                                                 const Labels& labels) {
  auto& family =
      prometheus::BuildCounter().Name(name).Help(help).Labels({{"role", impl_->role}}).Register(impl_->registry);
  return family.Add(labels);
}

prometheus::Gauge& MetricsRegistry::AddGauge(const std::string& name, const std::string& help, const Labels& labels) {
  auto& family =
      prometheus::BuildGauge().Name(name).Help(help).Labels({{"role", impl_->role}}).Register(impl_->registry);
  return family.Add(labels);
}

prometheus::Histogram& MetricsRegistry::AddHistogram(const std::string& name, const std::string& help,
                                                     const std::vector<double>& bounds, const Labels& labels) {
  auto& family =
      prometheus::BuildHistogram().Name(name).Help(help).Labels({{"role", impl_->role}}).Register(impl_->registry);
  return family.Add(labels, bounds);
}

void MetricsRegistry::SetModelName(const std::string& name) { impl_->of_model->SetModelName(name); }

std::string MetricsRegistry::Text() const { return prometheus::TextSerializer().Serialize(impl_->of_model->Collect()); }

absl::Status MetricsRegistry::Serve(const std::string& address) {
  // A silent client occupies a worker until the time-out. The default of 30 s exceeds any scraper's patience.
  const std::vector<std::string> options = {"listening_ports",    address, "num_threads", "4",
                                            "request_timeout_ms", "1000"};
  try {
    impl_->exposer = std::make_unique<prometheus::Exposer>(options);
    impl_->exposer->RegisterCollectable(impl_->of_model);
  } catch (const std::exception& error) {
    return absl::UnavailableError("cannot serve /metrics on " + address + ": " + error.what() +
                                  "; choose another --metrics-address");
  }
  return absl::OkStatus();
}

std::vector<double> TimeToFirstTokenBuckets() {
  return {0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1,
          2.5,   5,     7.5,  10,   20,   30,   40,   80,  160,  640, 2560};
}
std::vector<double> InterTokenBuckets() {
  return {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3,
          0.4,   0.5,    0.75,  1,    2.5,   5,    7.5,   10,  20,   40,  80};
}
std::vector<double> RequestSecondsBuckets() {
  return {0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680};
}
std::vector<double> TokenCountBuckets() {
  std::vector<double> bounds;
  for (double bound = 1; bound <= 131072; bound *= 2) bounds.push_back(bound);
  return bounds;
}

}  // namespace moestro
