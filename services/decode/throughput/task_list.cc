#include "services/decode/throughput/task_list.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/status.h"

namespace moestro::decode {
namespace {

constexpr std::array<const char*, kTaskKinds> kKindNames = {
    "pre-attention",         "attention",          "post-attention",
    "attention on the host", "storing of entries", "loading of page",
    "loading of the cache",  "loading of outputs", "offloading"};

// Micro-batches that the host's attention is ahead of the device's experts.
constexpr int64_t kAhead = 2;

// Which task of a list a kind, layer and part are; -1: none. Layers go up to and including their number.
class TaskIndex {
 public:
  TaskIndex(int64_t layers, int64_t parts)
      : parts_(parts), tasks_(kTaskKinds * static_cast<size_t>((layers + 1) * parts), -1) {}
  int32_t& operator()(TaskKind kind, int64_t layer, int64_t part) {
    const auto layers = static_cast<int64_t>(tasks_.size() / kTaskKinds) / parts_;
    return tasks_[static_cast<size_t>((static_cast<int64_t>(kind) * layers + layer) * parts_ + part)];
  }

 private:
  int64_t parts_;
  std::vector<int32_t> tasks_;
};

// The streamed layer whose weights lie where those of `layer` come to; -1: none in this step. `next`: the number of
// layers, for the next step's first.
int64_t LayerBefore(const StepShape& shape, int64_t layer) {
  const auto at = std::ranges::lower_bound(shape.streamed, layer) - shape.streamed.begin();
  return at < 2 ? -1 : shape.streamed[static_cast<size_t>(at - 2)];
}

class Lister {
 public:
  Lister(BatchSchedule schedule, const StepShape& shape)
      : schedule_(schedule), index_(shape.layers, shape.micro_batches) {
    list_.shape = shape;
    list_.attends_on_device = AttendsOnDevice(schedule);
  }

  TaskList List() {
    if (!list_.shape.streamed.empty() && !list_.shape.first_is_there) LoadLayer(list_.shape.streamed.front());
    if (list_.attends_on_device) {
      LoadCache(0);
    } else {
      for (int64_t i = 0; i < ahead(); ++i) AttendOnHost(i);
    }
    for (int64_t i = 0; i < steps(); ++i) {
      list_.attends_on_device ? StepOnDevice(i) : StepWithHost(i);
    }
    return std::move(list_);
  }

 private:
  int64_t parts() const { return list_.shape.micro_batches; }
  int64_t steps() const { return list_.shape.layers * parts(); }
  int64_t ahead() const { return schedule_ == BatchSchedule::kS3 ? 1 : std::min(kAhead, parts()); }

  // Micro-batch i mod parts in layer i / parts. Tasks that are not in the list are not waited for.
  void Add(TaskKind kind, int64_t layer, int64_t part, std::initializer_list<int32_t> waits) {
    Task task{.kind = kind, .layer = layer, .part = part, .waits = {}};
    for (const int32_t wait : waits) {
      if (wait >= 0) task.waits.push_back(wait);
    }
    index_(kind, layer, part) = static_cast<int32_t>(list_.tasks.size());
    list_.tasks.push_back(std::move(task));
  }
  void Add(TaskKind kind, int64_t i, std::initializer_list<int32_t> waits) {
    Add(kind, i / parts(), i % parts(), waits);
  }
  int32_t At(TaskKind kind, int64_t i) { return i < 0 ? -1 : index_(kind, i / parts(), i % parts()); }

  bool Streams(int64_t layer) const { return std::ranges::binary_search(list_.shape.streamed, layer); }
  // The streamed layer whose weights come while `layer` computes: the one behind it, or the next step's first. -1:
  // none, because this layer streams none.
  int64_t Coming(int64_t layer) const {
    if (!Streams(layer)) return -1;
    const auto next = std::ranges::upper_bound(list_.shape.streamed, layer);
    return next == list_.shape.streamed.end() ? list_.shape.layers : *next;
  }
  void LoadPage(int64_t layer, int64_t page) {
    const int64_t before = LayerBefore(list_.shape, layer);
    Add(TaskKind::kLoadPage, layer, page, {before < 0 ? -1 : index_(TaskKind::kPostAttention, before, parts() - 1)});
  }
  void LoadLayer(int64_t layer) {
    for (int64_t page = 0; page < parts(); ++page) LoadPage(layer, page);
  }
  void LoadCache(int64_t i) { Add(TaskKind::kLoadCache, i, {At(TaskKind::kAttend, i - 2)}); }

  void AttendOnHost(int64_t i) {
    Add(TaskKind::kPreAttention, i, {});
    Add(TaskKind::kOffload, i, {At(TaskKind::kPreAttention, i)});
    Add(TaskKind::kHostAttention, i, {At(TaskKind::kOffload, i)});
  }
  // What post-attention waits for besides attention: the last page of its layer.
  int32_t Weights(int64_t i) {
    const int64_t layer = i / parts();
    return Streams(layer) ? index_(TaskKind::kLoadPage, layer, parts() - 1) : -1;
  }
  void StepWithHost(int64_t i) {
    const int64_t layer = i / parts(), part = i % parts(), coming = Coming(layer);
    Add(TaskKind::kLoadOutputs, i, {At(TaskKind::kHostAttention, i)});
    if (coming >= 0 && schedule_ == BatchSchedule::kCgoPipe) LoadPage(coming, part);
    if (coming >= 0 && schedule_ != BatchSchedule::kCgoPipe && part == parts() - 1) LoadLayer(coming);
    Add(TaskKind::kPostAttention, i, {At(TaskKind::kLoadOutputs, i), Weights(i)});
    if (i + ahead() < steps()) AttendOnHost(i + ahead());
  }
  void StepOnDevice(int64_t i) {
    const int64_t layer = i / parts(), part = i % parts(), coming = Coming(layer);
    if (i + 1 < steps()) LoadCache(i + 1);
    if (coming >= 0 && part == parts() - 1) LoadLayer(coming);
    // Entries of the layer before lie where this one's come to, on the device and on the host.
    Add(TaskKind::kPreAttention, i, {At(TaskKind::kOffload, i - parts())});
    Add(TaskKind::kAttend, i, {At(TaskKind::kLoadCache, i)});
    Add(TaskKind::kOffload, i, {At(TaskKind::kPreAttention, i), At(TaskKind::kStoreEntries, i - parts())});
    Add(TaskKind::kStoreEntries, i, {At(TaskKind::kOffload, i), At(TaskKind::kLoadCache, i)});
    Add(TaskKind::kPostAttention, i, {Weights(i)});
  }

  const BatchSchedule schedule_;
  TaskList list_;
  TaskIndex index_;
};

// The order that a list guarantees, whatever its tasks take: what a resource has done when a task begins.
class GuaranteedOrder {
 public:
  // `tasks` wait for earlier ones only.
  explicit GuaranteedOrder(const std::vector<Task>& tasks) : done_(tasks.size()), place_(tasks.size()) {
    std::array<Done, kResources> last = {};  // of each resource, behind its last task
    for (size_t i = 0; i < tasks.size(); ++i) {
      const auto own = static_cast<size_t>(ResourceOf(tasks[i].kind));
      Done done = last[own];
      for (const int32_t wait : tasks[i].waits) {
        const auto w = static_cast<size_t>(wait);
        for (size_t r = 0; r < kResources; ++r) done[r] = std::max(done[r], done_[w][r]);
        const auto resource = static_cast<size_t>(ResourceOf(tasks[w].kind));
        done[resource] = std::max(done[resource], place_[w]);
      }
      done_[i] = done;
      place_[i] = last[own][own] + 1;
      last[own] = done;
      last[own][own] = place_[i];
    }
    for (const Task& task : tasks) resources_.push_back(static_cast<size_t>(ResourceOf(task.kind)));
  }
  // Whether `first` has ended when `then` begins.
  bool Holds(int32_t first, int32_t then) const {
    const auto f = static_cast<size_t>(first), t = static_cast<size_t>(then);
    return first != then && done_[t][resources_[f]] >= place_[f];
  }

 private:
  using Done = std::array<int64_t, kResources>;  // tasks of each resource that have ended
  std::vector<Done> done_;                       // when the task begins
  std::vector<int64_t> place_;                   // on its resource, from 1
  std::vector<size_t> resources_;
};

class Checker {
 public:
  explicit Checker(const TaskList& list) : list_(list), index_(list.shape.layers, list.shape.micro_batches) {}

  absl::Status Check() {
    MOE_RETURN_IF_ERROR(Enter());
    MOE_RETURN_IF_ERROR(Complete());
    const GuaranteedOrder order(list_.tasks);
    order_ = &order;
    for (int64_t layer = 0; layer <= shape().layers && status_.ok(); ++layer) {
      if (layer < shape().layers) CheckLayer(layer);
      if (Streams(layer) || (layer == shape().layers && !shape().streamed.empty())) CheckPages(layer);
    }
    return status_;
  }

 private:
  using enum TaskKind;
  const StepShape& shape() const { return list_.shape; }
  bool Streams(int64_t layer) const { return std::ranges::binary_search(shape().streamed, layer); }

  absl::Status Enter() {
    for (size_t i = 0; i < list_.tasks.size(); ++i) {
      const Task& task = list_.tasks[i];
      if (task.layer < 0 || task.layer > shape().layers || task.part < 0 || task.part >= shape().micro_batches) {
        return absl::InvalidArgumentError(absl::StrCat(NameOf(task), ": there is no such layer or part"));
      }
      int32_t& entry = index_(task.kind, task.layer, task.part);
      if (entry >= 0) return absl::InvalidArgumentError(absl::StrCat(NameOf(task), " is in the list twice"));
      entry = static_cast<int32_t>(i);
      for (const int32_t wait : task.waits) {
        if (wait < 0 || static_cast<size_t>(wait) >= i) {
          return absl::InvalidArgumentError(
              absl::StrCat(NameOf(task), " waits for a task that is not before it in the list"));
        }
      }
    }
    return absl::OkStatus();
  }

  std::vector<TaskKind> Kinds() const {
    if (list_.attends_on_device) return {kPreAttention, kAttend, kPostAttention, kOffload, kStoreEntries, kLoadCache};
    return {kPreAttention, kPostAttention, kOffload, kHostAttention, kLoadOutputs};
  }
  absl::Status Complete() {
    size_t expected = 0;
    const auto require = [&](TaskKind kind, int64_t layer, int64_t part) {
      ++expected;
      return index_(kind, layer, part) >= 0
                 ? absl::OkStatus()
                 : absl::InvalidArgumentError(absl::StrCat(NameOf({kind, layer, part, {}}), " is missing"));
    };
    for (int64_t part = 0; part < shape().micro_batches; ++part) {
      for (int64_t layer = 0; layer < shape().layers; ++layer) {
        for (const TaskKind kind : Kinds()) MOE_RETURN_IF_ERROR(require(kind, layer, part));
        const bool there = shape().first_is_there && !shape().streamed.empty() && layer == shape().streamed.front();
        if (Streams(layer) && !there) MOE_RETURN_IF_ERROR(require(kLoadPage, layer, part));
      }
      if (!shape().streamed.empty()) MOE_RETURN_IF_ERROR(require(kLoadPage, shape().layers, part));
    }
    if (list_.tasks.size() == expected) return absl::OkStatus();
    return absl::InvalidArgumentError("the list has tasks that the step does not need");
  }

  void Require(TaskKind first, int64_t layer, int64_t part, TaskKind then, int64_t then_layer, int64_t then_part) {
    const int32_t a = index_(first, layer, part), b = index_(then, then_layer, then_part);
    if (!status_.ok() || a < 0 || order_->Holds(a, b)) return;
    status_ = absl::InvalidArgumentError(absl::StrCat(NameOf(list_.tasks[static_cast<size_t>(b)]),
                                                      " may begin before the end of ",
                                                      NameOf(list_.tasks[static_cast<size_t>(a)])));
  }

  void CheckLayer(int64_t layer) {
    const int64_t last_page = Streams(layer) ? Last(kLoadPage, layer) : 0;
    for (int64_t part = 0; part < shape().micro_batches; ++part) {
      const auto before = [&](TaskKind first, TaskKind then) { Require(first, layer, part, then, layer, part); };
      if (layer > 0) Require(kPostAttention, layer - 1, part, kPreAttention, layer, part);
      // Which embeds the rows of all.
      if (layer == 0 && part > 0) Require(kPreAttention, 0, 0, kPreAttention, 0, part);
      before(kPreAttention, kOffload);
      if (list_.attends_on_device) {
        before(kPreAttention, kAttend);
        before(kLoadCache, kAttend);
        before(kAttend, kPostAttention);
        before(kOffload, kStoreEntries);
        before(kLoadCache, kStoreEntries);  // which changes the last block
        // Entries that this layer overwrites, on the device and on the host.
        if (layer > 0) Require(kOffload, layer - 1, part, kPreAttention, layer, part);
        if (layer > 0) Require(kStoreEntries, layer - 1, part, kOffload, layer, part);
        // Two places for caches, in turn.
        const int64_t i = layer * shape().micro_batches + part - 2;
        if (i >= 0) {
          Require(kAttend, i / shape().micro_batches, i % shape().micro_batches, kLoadCache, layer, part);
        }
      } else {
        before(kOffload, kHostAttention);
        before(kHostAttention, kLoadOutputs);
        before(kLoadOutputs, kPostAttention);
      }
      if (Streams(layer)) Require(kLoadPage, layer, last_page, kPostAttention, layer, part);
    }
  }
  // The part whose task ends last of those of the kind in a layer: they are of one resource, so it stands for all.
  int64_t Last(TaskKind kind, int64_t layer) {
    int64_t last = 0;
    for (int64_t part = 1; part < shape().micro_batches; ++part) {
      if (index_(kind, layer, part) > index_(kind, layer, last)) last = part;
    }
    return last;
  }
  // Two places for layers, in turn.
  void CheckPages(int64_t layer) {
    const int64_t used_by = LayerBefore(shape(), layer);
    if (used_by < 0) return;
    const int64_t last = Last(kPostAttention, used_by);
    for (int64_t page = 0; page < shape().micro_batches; ++page) {
      if (index_(kLoadPage, layer, page) >= 0) Require(kPostAttention, used_by, last, kLoadPage, layer, page);
    }
  }

  const TaskList& list_;
  TaskIndex index_;
  const GuaranteedOrder* order_ = nullptr;
  absl::Status status_;
};

}  // namespace

Resource ResourceOf(TaskKind kind) {
  switch (kind) {
    case TaskKind::kPreAttention:
    case TaskKind::kAttend:
    case TaskKind::kPostAttention:
      return Resource::kDevice;
    case TaskKind::kHostAttention:
    case TaskKind::kStoreEntries:
      return Resource::kHost;
    case TaskKind::kLoadPage:
    case TaskKind::kLoadCache:
    case TaskKind::kLoadOutputs:
      return Resource::kToDevice;
    case TaskKind::kOffload:
      break;
  }
  return Resource::kToHost;
}

TaskList ListTasks(BatchSchedule schedule, const StepShape& shape) {
  MOE_CHECK(shape.layers > 0 && shape.micro_batches > 0);
  MOE_CHECK(schedule != BatchSchedule::kWholeLayer || shape.micro_batches == 1);
  return Lister(schedule, shape).List();
}

absl::Status CheckTasks(const TaskList& list) { return Checker(list).Check(); }

StepForecast Forecast(const TaskList& list, absl::FunctionRef<double(const Task& task)> seconds) {
  StepForecast forecast;
  std::vector<double> ends(list.tasks.size());
  std::array<double, kResources> free = {};
  for (size_t i = 0; i < list.tasks.size(); ++i) {
    const Task& task = list.tasks[i];
    const auto resource = static_cast<size_t>(ResourceOf(task.kind));
    double begin = free[resource];
    for (const int32_t wait : task.waits) begin = std::max(begin, ends[static_cast<size_t>(wait)]);
    const double takes = seconds(task);
    forecast.busy[resource] += takes;
    free[resource] = ends[i] = begin + takes;
    forecast.seconds = std::max(forecast.seconds, ends[i]);
  }
  return forecast;
}

std::string NameOf(const Task& task) {
  const char* const what = kKindNames[static_cast<size_t>(task.kind)];
  if (task.kind == TaskKind::kLoadPage) return absl::StrCat(what, " ", task.part, " of layer ", task.layer);
  return absl::StrCat(what, " of layer ", task.layer, ", micro-batch ", task.part);
}

}  // namespace moestro::decode
