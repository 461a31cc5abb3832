#include "services/router/http/choices.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/exceptions.h"
#include "common/base/mutex.h"
#include "common/base/status.h"
#include "services/router/http/request_fields.h"

namespace moestro::router {
namespace {

// Then a request that has not begun counts as waiting, and its client gets the first byte.
constexpr std::chrono::seconds kPatience{10};

class Choices {
 public:
  Choices(const HttpApi& api, Response& response, std::vector<GenerateInput> inputs, Answer& answer)
      : api_(api), response_(response), call_(response.call()), inputs_(Together(std::move(inputs))), answer_(answer) {}

  absl::Status Run() {
    for (size_t i = 1; i < inputs_.size(); ++i) {
      {
        MutexLock lock(mutex_);
        ++running_;
      }
      if (api_.workers.Run([this] { Work(/*helper=*/true); })) continue;
      MutexLock lock(mutex_);
      --running_;
      break;  // the others take what is left
    }
    Work(/*helper=*/false);
    MutexLock lock(mutex_);
    while (running_ > 0) changed_.wait(lock);
    return status_;
  }

 private:
  static std::vector<GenerateInput> Together(std::vector<GenerateInput> inputs) {
    for (GenerateInput& input : inputs) input.choices = static_cast<uint32_t>(inputs.size());
    return inputs;
  }

  // Tells the answer what becomes of one choice.
  class Replies final : public GenerateReplies {
   public:
    Replies(Choices& all, size_t choice) : all_(all), choice_(choice) {}
    void Bounded(uint32_t max_tokens) override {
      if (all_.inputs_[choice_].max_tokens <= max_tokens) return;
      MutexLock lock(all_.answer_mutex_);
      all_.shortest_ = std::min(all_.shortest_, max_tokens);
      all_.response_.AddHeader(kMaxTokensHeader, absl::StrCat(all_.shortest_));
    }
    absl::Status Waiting() override {
      MutexLock lock(all_.answer_mutex_);
      return all_.answer_.Waiting();
    }
    absl::Status Started(const std::string& /*request_id*/, uint32_t prompt_tokens,
                         const AdmissionNotice& notice) override {
      MutexLock lock(all_.answer_mutex_);
      return all_.answer_.Started(choice_, prompt_tokens, notice);
    }
    absl::Status Prefill(const PrefillProgress& progress) override {
      MutexLock lock(all_.answer_mutex_);
      return all_.answer_.Prefill(choice_, progress);
    }
    absl::Status Tokens(const std::vector<Token>& tokens, const std::string& text) override {
      MutexLock lock(all_.answer_mutex_);
      return all_.answer_.Tokens(choice_, tokens, text);
    }
    absl::Status Finished(const RequestSummary& summary) override {
      MutexLock lock(all_.answer_mutex_);
      return all_.answer_.Finished(choice_, summary);
    }

   private:
    Choices& all_;
    const size_t choice_;
  };

  void Work(bool helper) {
    while (true) {
      const size_t choice = next_++;
      if (choice >= inputs_.size()) break;
      const absl::Status status = CatchExceptions([&] { return Generate(choice); });
      if (!status.ok()) Fail(status);
    }
    if (!helper) return;
    MutexLock lock(mutex_);
    --running_;
    changed_.notify_all();
  }

  absl::Status Generate(size_t choice) {
    return WithPeers(api_, call_, [&](CallPeers peers) {
      Replies replies(*this, choice);
      const RequestClock::TimePoint begin = api_.clock.Now();
      // A role that restarts may take longer than the client's patience.
      peers.check = [&, check = peers.check]() -> absl::Status {
        MOE_RETURN_IF_ERROR(check());
        if (api_.clock.Now() - begin < kPatience) return absl::OkStatus();
        return replies.Waiting();
      };
      return api_.runner.Generate([&](const ServedModel&) -> absl::StatusOr<GenerateInput> { return inputs_[choice]; },
                                  peers, replies);
    });
  }

  // The first error counts: the others follow from it.
  void Fail(const absl::Status& status) {
    {
      MutexLock lock(mutex_);
      if (!status_.ok()) return;
      status_ = status;
    }
    call_.Cancel();
  }

  const HttpApi& api_;
  Response& response_;
  ClientCall& call_;
  const std::vector<GenerateInput> inputs_;
  Answer& answer_;
  std::atomic<size_t> next_{0};
  Mutex answer_mutex_;
  uint32_t shortest_ ABSL_GUARDED_BY(answer_mutex_) = UINT32_MAX;  // of those that end sooner than they were asked to
  Mutex mutex_;
  Condition changed_;
  size_t running_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
};

std::string NameOf(const std::string& id, size_t choice) { return choice == 0 ? id : absl::StrCat(id, "-", choice); }

}  // namespace

bool AbortChoices(const HttpApi& api, const Tenant& tenant, const std::string& id) {
  bool any = false;
  for (size_t i = 0; i < size_t{kMostChoices}; ++i) any = api.runner.Abort(tenant, NameOf(id, i)).ok() || any;
  return any;
}

absl::Status RunChoices(const HttpApi& api, Response& response, const std::string& id,
                        std::vector<GenerateInput> inputs, Answer& answer) {
  for (size_t i = 0; i < inputs.size(); ++i) inputs[i].request_id = NameOf(id, i);
  return Choices(api, response, std::move(inputs), answer).Run();
}

}  // namespace moestro::router
