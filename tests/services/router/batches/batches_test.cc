#include "services/router/batches/batches.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <optional>
#include <thread>

#include "absl/strings/str_format.h"
#include "common/base/mutex.h"

namespace moestro::router {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kUrl[] = "/v1/completions";

// Lets as many requests through as it is told to; what waits ends when the run does.
class Gate {
 public:
  void Open(int requests) {
    MutexLock lock(mutex_);
    left_ += requests;
    changed_.notify_all();
  }
  bool Pass(const bool& cancelled) {
    MutexLock lock(mutex_);
    while (left_ == 0 && !cancelled) changed_.wait(lock);
    if (cancelled) return false;
    --left_;
    return true;
  }
  void Cancel(bool& cancelled) {
    MutexLock lock(mutex_);
    cancelled = true;
    changed_.notify_all();
  }

 private:
  Mutex mutex_;
  Condition changed_;
  int left_ = 0;
};

class FakeExecutor final : public batch::Executor {
 public:
  FakeExecutor(Gate& gate, std::atomic<int>& sent) : gate_(gate), sent_(sent) {}
  batch::Reply Execute(const batch::Request& request) override {
    ++sent_;
    if (!gate_.Pass(cancelled_)) return {.failure = "cancelled"};
    if (request.custom_id.starts_with("bad")) return {.status = 400, .body = R"({"error": {}})"};
    if (request.custom_id.starts_with("no")) return {.status = 401, .body = R"({"error": {"message": "no key"}})"};
    return {.status = 200, .body = R"({"id": ")" + request.custom_id + R"("})"};
  }
  void Cancel() override { gate_.Cancel(cancelled_); }

 private:
  Gate& gate_;
  std::atomic<int>& sent_;
  bool cancelled_ = false;
};

// A file whose writer waits for us.
class SlowFile {
 public:
  explicit SlowFile(const std::string& path) : path_(path) { EXPECT_EQ(::mkfifo(path.c_str(), 0600), 0) << path; }
  ~SlowFile() { ::close(descriptor_); }
  // More than a pipe holds, so that it is not written at once.
  static constexpr size_t kBytes = size_t{1} << 20;

  void WaitForWriter() { descriptor_ = ::open(path_.c_str(), O_RDONLY); }
  void TakeAll() const {
    std::string piece(4096, '\0');
    while (::read(descriptor_, piece.data(), piece.size()) > 0) continue;
  }

 private:
  const std::string path_;
  int descriptor_ = -1;
};

class BatchesTest : public ::testing::Test {
 protected:
  BatchesTest() { Restart(); }
  ~BatchesTest() override {
    Stop();
    std::filesystem::remove_all(folder_);
  }

  // A new process on the same folder.
  void Restart() {
    Stop();
    registry_.emplace("router");
    metrics_.emplace(*registry_);
    const auto random = [this] { return random_ += kRandomStep; };
    files_.emplace(folder_ + "/files", file_limits_, random);
    batches_.emplace(
        folder_, limits_, *files_, *metrics_,
        [this](const std::string&) { return std::make_unique<FakeExecutor>(gate_, sent_); }, random);
    ASSERT_TRUE(batches_->Start().ok());
  }
  // The process is killed now: the next one finds what is on disk.
  void KillAndRestart() {
    const std::string killed = folder_ + ".killed";
    std::filesystem::copy(folder_, killed, std::filesystem::copy_options::recursive);
    Stop();
    std::filesystem::remove_all(folder_);
    std::filesystem::rename(killed, folder_);
    Restart();
  }
  void Stop() {
    if (batches_) batches_->Stop();
    batches_.reset();
    files_.reset();
    metrics_.reset();
    registry_.reset();
  }

  static std::string Line(const std::string& id) {
    return R"({"custom_id": ")" + id + R"(", "method": "POST", "url": "/v1/completions", "body": {}})" + "\n";
  }
  std::string Upload(const std::string& text, const std::string& tenant = "alice") {
    return batches_->AddFile(tenant, "in.jsonl", text)->id;
  }
  std::string Create(const std::string& text, const std::string& tenant = "alice") {
    const auto batch = batches_->Create(tenant, Upload(text, tenant), kUrl, nullptr);
    EXPECT_TRUE(batch.ok()) << batch.status();
    return batch->id;
  }
  BatchRecord Get(const std::string& id) { return *batches_->Find("alice", id); }
  // Polls: the batch runs on its own thread.
  BatchRecord WaitFor(const std::string& id, const std::function<bool(const BatchRecord&)>& condition) {
    while (!condition(Get(id))) std::this_thread::yield();
    return Get(id);
  }
  BatchRecord WaitForEnd(const std::string& id) {
    return WaitFor(id, [](const BatchRecord& batch) { return batch.finished(); });
  }
  std::string Contents(const std::string& id) {
    std::ifstream file(files_->PathOf(id));
    return {std::istreambuf_iterator<char>(file), {}};
  }
  size_t LinesOf(const std::string& id) {
    const std::string text = Contents(id);
    return static_cast<size_t>(std::count(text.begin(), text.end(), '\n'));
  }

  // The digits of the next id of a folder whose clock was ahead when it made `name`, or when that was a name.
  static constexpr char kAhead[] = "7000000000000000";
  std::string NextDigits() const {
    std::string digits = kAhead;
    digits.back() = '1';
    return absl::StrFormat("%s%016x", digits, random_ + kRandomStep);
  }

  static constexpr uint64_t kRandomStep = 0x123456789abcdefu;
  const std::string folder_ = ::testing::TempDir() + "batches_" + std::to_string(getpid());
  FileLimits file_limits_;
  BatchLimits limits_{.in_flight = 1};
  std::atomic<uint64_t> random_{1};
  Gate gate_;
  std::atomic<int> sent_{0};
  std::optional<MetricsRegistry> registry_;
  std::optional<BatchMetrics> metrics_;
  std::optional<FileStore> files_;
  std::optional<Batches> batches_;
};

TEST_F(BatchesTest, ABatchEndsWithAnOutputAndAFileOfErrors) {
  gate_.Open(3);
  const std::string id = Create(Line("a") + Line("bad") + Line("c"));
  const BatchRecord batch = WaitForEnd(id);
  EXPECT_EQ(batch.status, BatchStatus::kCompleted);
  EXPECT_EQ(batch.total, 3u);
  EXPECT_EQ(batch.completed, 2u);
  EXPECT_EQ(batch.failed, 1u);
  const auto json = batch.ToJson();
  EXPECT_EQ(json["status"], "completed");
  EXPECT_THAT(Contents(json["output_file_id"]), HasSubstr(R"("custom_id":"a")"));
  EXPECT_EQ(LinesOf(json["output_file_id"]), 2u);
  EXPECT_EQ(LinesOf(json["error_file_id"]), 1u);
  EXPECT_EQ(files_->Find("alice", json["output_file_id"])->purpose, "batch_output");
  EXPECT_EQ(metrics_->answered.Value(), 2);
  EXPECT_EQ(metrics_->failed.Value(), 1);
  EXPECT_EQ(metrics_->completed.Value(), 1);
}

TEST_F(BatchesTest, WhoSeesTheEndFindsThePlaceFree) {
  limits_.unfinished = 1;
  Restart();
  gate_.Open(200);
  for (int i = 0; i < 100; ++i) {
    ASSERT_EQ(WaitForEnd(Create(Line("a"))).status, BatchStatus::kCompleted);
    ASSERT_EQ(metrics_->unfinished.Value(), 0);
    ASSERT_EQ(WaitForEnd(Create("{\n")).status, BatchStatus::kFailed);
    ASSERT_EQ(metrics_->unfinished.Value(), 0);
  }
}

// A key that has filled what it may have must not fill the disk with results.
TEST_F(BatchesTest, AKeyThatHasTooManyBytesBeginsNoMoreBatches) {
  const std::string input = Line("a");
  file_limits_.bytes = 2 * input.size();
  Restart();
  gate_.Open(100);
  const std::string file = Upload(input);
  uint64_t before = 0;
  for (int i = 0; i < 20; ++i) {
    const auto batch = batches_->Create("alice", file, kUrl, nullptr);
    if (!batch.ok()) break;
    WaitForEnd(batch->id);
    before = files_->bytes();
  }
  EXPECT_LE(before, 10 * file_limits_.bytes);  // results of the batches that had begun below the limit
}

// The disk is full for a moment.
TEST_F(BatchesTest, ACancelThatCouldNotBeWrittenMayBeRepeated) {
  const std::string id = Create(Line("a") + Line("b"));
  WaitFor(id, [this](const BatchRecord& batch) { return batch.status == BatchStatus::kInProgress && sent_ == 1; });
  const std::string partial = folder_ + "/batches/" + id + ".json.partial";
  std::filesystem::create_directory(partial);
  EXPECT_FALSE(batches_->Cancel("alice", id).ok());
  std::filesystem::remove(partial);
  EXPECT_TRUE(batches_->Cancel("alice", id).ok());
  EXPECT_EQ(WaitForEnd(id).status, BatchStatus::kCancelled);
}

TEST_F(BatchesTest, ACancelOfOneThatWaitsThatCouldNotBeWrittenChangesNothing) {
  const std::string first = Create(Line("a"));
  const std::string id = Create(Line("b"));
  const std::string partial = folder_ + "/batches/" + id + ".json.partial";
  std::filesystem::create_directory(partial);
  EXPECT_FALSE(batches_->Cancel("alice", id).ok());
  EXPECT_EQ(Get(id).status, BatchStatus::kValidating);
  std::filesystem::remove(partial);
  EXPECT_TRUE(batches_->Cancel("alice", id).ok());
  gate_.Open(2);
  WaitForEnd(first);
}

TEST_F(BatchesTest, FilesWithoutALineAreNotThere) {
  gate_.Open(2);
  const auto good = WaitForEnd(Create(Line("a"))).ToJson();
  EXPECT_TRUE(good["error_file_id"].is_null());
  const auto bad = WaitForEnd(Create(Line("bad"))).ToJson();
  EXPECT_TRUE(bad["output_file_id"].is_null());
  EXPECT_EQ(files_->List("alice").size(), 4u);  // two inputs, an output, errors
}

TEST_F(BatchesTest, AWrongFileFailsTheBatchWithItsLines) {
  const auto json = WaitForEnd(Create(Line("a") + Line("a") + "{\n")).ToJson();
  EXPECT_EQ(json["status"], "failed");
  EXPECT_EQ(json["errors"]["data"][0]["code"], "duplicate_custom_id");
  EXPECT_EQ(json["errors"]["data"][0]["line"], 2);
  EXPECT_EQ(json["errors"]["data"][1]["line"], 3);
  EXPECT_EQ(sent_, 0);
}

TEST_F(BatchesTest, AKeyThatIsGoneFailsTheBatchWhichKeepsWhatIsDone) {
  gate_.Open(2);
  const auto json = WaitForEnd(Create(Line("a") + Line("no"))).ToJson();
  EXPECT_EQ(json["status"], "failed");
  EXPECT_THAT(std::string(json["errors"]["data"][0]["message"]), HasSubstr("no key"));
  EXPECT_EQ(LinesOf(json["output_file_id"]), 1u);
}

TEST_F(BatchesTest, ARestartGoesOnWithWhatIsMissing) {
  gate_.Open(2);
  const std::string text = Line("a") + Line("b") + Line("c") + Line("d");
  const std::string id = Create(text);
  WaitFor(id, [](const BatchRecord& batch) { return batch.completed == 2; });
  Restart();
  const int before = sent_;
  gate_.Open(2);
  const BatchRecord batch = WaitForEnd(id);
  EXPECT_EQ(batch.completed, 4u);
  EXPECT_EQ(LinesOf(batch.output_file), 4u);
  EXPECT_LE(sent_ - before, 3);              // c and d; c may have been under way
  EXPECT_EQ(metrics_->answered.Value(), 2);  // by this process
  Restart();
  EXPECT_EQ(Get(id).ToJson(), batch.ToJson());
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/batches/" + id + ".journal"));
}

TEST_F(BatchesTest, ARequestThatKillsTheRouterFails) {
  limits_.in_flight = 3;
  Restart();
  const std::string id = Create(Line("pill") + Line("b") + Line("c") + Line("d"));
  const auto under_way = [&](int requests) {
    WaitFor(id, [&](const BatchRecord&) { return sent_ == requests; });
    sent_ = 0;
  };
  under_way(3);
  for (int deaths = 1; deaths <= 2; ++deaths) {
    KillAndRestart();
    under_way(1);  // the pill, alone
  }
  KillAndRestart();
  gate_.Open(3);
  const auto json = WaitForEnd(id).ToJson();
  EXPECT_EQ(json["status"], "completed");
  EXPECT_EQ(LinesOf(json["output_file_id"]), 3u);
  EXPECT_THAT(Contents(json["error_file_id"]), AllOf(HasSubstr(R"("custom_id":"pill")"), HasSubstr("process_ended")));
}

TEST_F(BatchesTest, ABatchHasAsManyRequestsInWorkAsDecodeLeavesIt) {
  limits_.in_flight = 0;
  Restart();
  const std::string cancelled = Create(Line("a"));
  ASSERT_TRUE(batches_->Cancel("alice", cancelled).ok());
  EXPECT_EQ(WaitForEnd(cancelled).status, BatchStatus::kCancelled) << "it waited to know how many";
  EXPECT_EQ(sent_, 0);
  const std::string id = Create(Line("a") + Line("b") + Line("c"));
  batches_->SetPlaces(2);
  WaitFor(id, [&](const BatchRecord&) { return sent_ == 2; });
  gate_.Open(3);
  EXPECT_EQ(WaitForEnd(id).completed, 3u);
}

TEST_F(BatchesTest, CancelKeepsWhatIsDone) {
  gate_.Open(1);
  const std::string id = Create(Line("a") + Line("b"));
  WaitFor(id, [](const BatchRecord& batch) { return batch.completed == 1; });
  const auto cancelling = batches_->Cancel("alice", id);
  ASSERT_TRUE(cancelling.ok());
  EXPECT_EQ(cancelling->status, BatchStatus::kCancelling);
  const BatchRecord batch = WaitForEnd(id);
  EXPECT_EQ(batch.status, BatchStatus::kCancelled);
  EXPECT_EQ(LinesOf(batch.output_file), 1u);
  EXPECT_EQ(batches_->Cancel("alice", id).status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(BatchesTest, ACancelledBatchThatWaitsEndsAtOnce) {
  const std::string first = Create(Line("a"));
  const std::string second = Create(Line("b"));
  EXPECT_EQ(batches_->Cancel("alice", second)->status, BatchStatus::kCancelled);
  EXPECT_EQ(metrics_->unfinished.Value(), 1);
  gate_.Open(1);
  EXPECT_EQ(WaitForEnd(first).status, BatchStatus::kCompleted);
  EXPECT_EQ(metrics_->open_requests.Value(), 0);
}

TEST_F(BatchesTest, CancelledBatchesAreForgotten) {
  limits_ = {.unfinished = 2, .finished = 2, .in_flight = 1};
  Restart();
  const std::string runs = Create(Line("a"));
  const std::string file = Upload(Line("b"));
  for (int i = 0; i < 5; ++i) {
    const auto waits = batches_->Create("alice", file, kUrl, nullptr);
    ASSERT_TRUE(waits.ok()) << waits.status();
    EXPECT_EQ(batches_->Cancel("alice", waits->id)->status, BatchStatus::kCancelled);
    EXPECT_EQ(batches_->List("alice").size(), std::min(i + 2, 3));
  }
  gate_.Open(1);
  WaitFor(batches_->List("alice")[0].id, [&](const BatchRecord&) { return batches_->List("alice").size() == 2; });
}

TEST_F(BatchesTest, AForgottenBatchLeavesNothing) {
  limits_.finished = 1;
  Restart();
  gate_.Open(1);
  const std::string failed = Create(Line("no"));  // its journal stays
  WaitForEnd(failed);
  Create("{\n");
  while (batches_->List("alice").size() != 1 || batches_->List("alice")[0].id == failed) std::this_thread::yield();
  Stop();
  for (const auto& entry : std::filesystem::directory_iterator(folder_ + "/batches")) {
    EXPECT_THAT(entry.path().filename(), Not(HasSubstr(failed)));
  }
}

TEST_F(BatchesTest, ATenantSeesItsOwnOnly) {
  const std::string file = Upload(Line("a"), "bob");
  EXPECT_TRUE(absl::IsNotFound(files_->Find("alice", file).status()));
  EXPECT_TRUE(absl::IsNotFound(batches_->RemoveFile("alice", file)));
  EXPECT_TRUE(absl::IsNotFound(batches_->Create("alice", file, kUrl, nullptr).status()));
  const std::string batch = Create(Line("a"), "bob");
  EXPECT_TRUE(absl::IsNotFound(batches_->Find("alice", batch).status()));
  EXPECT_TRUE(absl::IsNotFound(batches_->Cancel("alice", batch).status()));
  EXPECT_TRUE(batches_->List("alice").empty());
  EXPECT_TRUE(files_->List("alice").empty());
  EXPECT_EQ(batches_->List("bob").size(), 1u);
}

TEST_F(BatchesTest, TenantsDoNotWaitForEachOther) {
  const std::string bobs = Create(Line("a") + Line("b"), "bob");
  gate_.Open(3);
  EXPECT_EQ(WaitForEnd(Create(Line("a"))).status, BatchStatus::kCompleted);
}

TEST_F(BatchesTest, AFileInUseStays) {
  const std::string file = Upload(Line("a"));
  const auto batch = batches_->Create("alice", file, kUrl, nullptr);
  EXPECT_EQ(batches_->RemoveFile("alice", file).code(), absl::StatusCode::kFailedPrecondition);
  gate_.Open(1);
  WaitForEnd(batch->id);
  EXPECT_TRUE(batches_->RemoveFile("alice", file).ok());
  EXPECT_TRUE(absl::IsNotFound(batches_->RemoveFile("alice", file)));
  Restart();
  EXPECT_TRUE(absl::IsNotFound(files_->Find("alice", file).status()));
}

TEST_F(BatchesTest, ABatchIsRemovedWithItsFiles) {
  const std::string shared = Upload(Line("a"));
  const std::string first = batches_->Create("alice", shared, kUrl, nullptr)->id;
  EXPECT_EQ(batches_->Remove("alice", first).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(absl::IsNotFound(batches_->Remove("bob", first)));
  gate_.Open(1);
  WaitForEnd(first);
  const std::string second = batches_->Create("alice", shared, kUrl, nullptr)->id;
  EXPECT_TRUE(batches_->Remove("alice", first).ok());
  EXPECT_TRUE(absl::IsNotFound(batches_->Remove("alice", first)));
  EXPECT_EQ(files_->List("alice").size(), 1u);  // the other one reads it
  gate_.Open(1);
  WaitForEnd(second);
  EXPECT_TRUE(batches_->Remove("alice", second).ok());
  EXPECT_TRUE(files_->List("alice").empty());
  Restart();
  EXPECT_TRUE(batches_->List("alice").empty());
}

TEST_F(BatchesTest, WhoKnowsHowManyRequestsThereAreSeesThemAtOnce) {
  Create(Line("a"));
  const auto waits = batches_->Create("alice", Upload(Line("a") + Line("b")), kUrl, nullptr, 2);
  EXPECT_EQ(waits->total, 2u);
}

TEST_F(BatchesTest, BoundsAreOfEachKey) {
  file_limits_ = {.files = 3, .bytes = 1000};
  limits_ = {.unfinished = 2, .finished = 1, .requests = 2, .in_flight = 1};
  Restart();
  EXPECT_EQ(batches_->AddFile("alice", "x", std::string(1001, 'x')).status().code(),
            absl::StatusCode::kFailedPrecondition);
  const std::string file = Upload(Line("a"));
  const std::string large = Upload(Line("a") + Line("b") + Line("c"));
  Upload("");
  EXPECT_EQ(batches_->AddFile("alice", "x", "").status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(batches_->AddFile("bob", "x", "").ok());
  const auto first = batches_->Create("alice", file, kUrl, nullptr);
  const auto second = batches_->Create("alice", large, kUrl, nullptr);
  EXPECT_EQ(batches_->Create("alice", file, kUrl, nullptr).status().code(), absl::StatusCode::kFailedPrecondition);
  gate_.Open(1);
  EXPECT_EQ(WaitForEnd(second->id).errors[0].code, "too_many_tasks");
  // The older one is forgotten.
  while (batches_->List("alice").size() > 1) std::this_thread::yield();
  EXPECT_EQ(batches_->List("alice")[0].id, std::max(first->id, second->id));
}

TEST_F(BatchesTest, OneRouterHasAFolder) {
  FileStore files(folder_ + "/files", {}, [] { return 1; });
  Batches second(folder_, limits_, files, *metrics_, nullptr, [] { return 1; });
  const std::string arrives = folder_ + "/files/file-1.jsonl";
  std::ofstream(arrives) << "its record is not written yet";
  EXPECT_EQ(second.Start().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(std::filesystem::exists(arrives));
}

TEST_F(BatchesTest, DamagedRecordsStopNobody) {
  gate_.Open(1);
  const std::string id = Create(Line("a"));
  WaitForEnd(id);
  const std::string file = Upload("x");
  std::ofstream(folder_ + "/batches/batch_1.json") << "{";
  std::ofstream(folder_ + "/batches/batch_2.json") << R"({"tenant": 7})";
  std::ofstream(folder_ + "/files/file-1.json") << R"({"tenant": "alice", "bytes": "many"})";
  Restart();
  EXPECT_EQ(batches_->List("alice").size(), 1u);
  EXPECT_TRUE(files_->Find("alice", file).ok());
  for (const char* damaged : {"/batches/batch_1.damaged", "/batches/batch_2.damaged", "/files/file-1.damaged"}) {
    EXPECT_TRUE(std::filesystem::exists(folder_ + damaged)) << damaged;
  }
}

// Its clock was ahead when it made the first batch.
TEST_F(BatchesTest, TheOrderIsThatOfCreationWhateverTheClock) {
  limits_.finished = 1;
  gate_.Open(2);
  const std::string first = Create(Line("a"));
  WaitForEnd(first);
  Stop();
  const std::string ahead = std::string("batch_") + kAhead + std::string(16, '0');
  BatchRecord record;
  record.id = ahead;
  record.tenant = "alice";
  record.status = BatchStatus::kCompleted;
  std::filesystem::remove(folder_ + "/batches/" + first + ".json");
  std::ofstream(folder_ + "/batches/" + ahead + ".json") << record.ToRecord();
  Restart();
  const std::string second = Create(Line("b"));
  EXPECT_EQ(batches_->List("alice")[0].id, second);
  WaitForEnd(second);
  while (batches_->List("alice").size() > 1) std::this_thread::yield();
  EXPECT_EQ(batches_->List("alice")[0].id, second);
}

TEST_F(BatchesTest, AnUploadThatIsWrittenHoldsUpNobodyAndCounts) {
  file_limits_.files = 2;
  std::ofstream(folder_ + "/files/file-" + kAhead + std::string(16, '0') + ".json") << R"({"tenant": "bob"})";
  Restart();
  const std::string slow = "file-" + NextDigits();
  SlowFile file(files_->PathOf(slow));
  absl::Status added;
  std::thread upload([&] { added = batches_->AddFile("alice", "x", std::string(SlowFile::kBytes, 'x')).status(); });
  file.WaitForWriter();
  EXPECT_EQ(files_->List("bob").size(), 1u);
  EXPECT_TRUE(batches_->AddFile("bob", "x", "").ok());
  EXPECT_TRUE(batches_->AddFile("alice", "x", "").ok());
  EXPECT_EQ(batches_->AddFile("alice", "x", "").status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(absl::IsNotFound(files_->Find("alice", slow).status()));
  file.TakeAll();
  upload.join();
  EXPECT_EQ(added.code(), absl::StatusCode::kResourceExhausted) << "a pipe cannot be synced";
  EXPECT_FALSE(std::filesystem::exists(files_->PathOf(slow)));
  EXPECT_TRUE(batches_->AddFile("alice", "x", "").ok()) << "it counts no more";
}

TEST_F(BatchesTest, ARecordThatIsWrittenHoldsUpItsKeyOnly) {
  Stop();
  BatchRecord record;
  record.id = std::string("batch_") + kAhead + std::string(16, '0');
  record.tenant = "bob";
  record.status = BatchStatus::kCompleted;
  std::ofstream(folder_ + "/batches/" + record.id + ".json") << record.ToRecord();
  Restart();
  const std::string file_id = Upload(Line("a"));
  // Ids of files take two random numbers: those of the batch come first.
  SlowFile file(folder_ + "/batches/batch_" + NextDigits() + ".json.partial");
  absl::Status created;
  std::thread create([&] {
    created = batches_->Create("alice", file_id, kUrl, {{"key", std::string(SlowFile::kBytes, 'x')}}).status();
  });
  file.WaitForWriter();
  gate_.Open(1);
  const std::string bobs = Create(Line("b"), "bob");
  while (!batches_->Find("bob", bobs)->finished()) std::this_thread::yield();
  EXPECT_TRUE(batches_->List("alice").empty());
  EXPECT_EQ(batches_->List("bob").size(), 2u);
  file.TakeAll();
  create.join();
  EXPECT_EQ(created.code(), absl::StatusCode::kResourceExhausted) << "a pipe cannot be synced";
}

TEST(BatchRecordTest, ARecordKeepsEverything) {
  BatchRecord batch;
  batch.id = "batch_1";
  batch.tenant = "alice";
  batch.endpoint = kUrl;
  batch.input_file = "file-1";
  batch.output_file = "file-2";
  batch.error_file = "file-3";
  batch.has_errors = true;
  batch.status = BatchStatus::kCancelled;
  batch.created_at = 1;
  batch.in_progress_at = 2;
  batch.cancelling_at = 3;
  batch.cancelled_at = 4;
  batch.total = 5;
  batch.completed = 3;
  batch.failed = 1;
  batch.errors = {{.line = 2, .code = "c", .param = "p", .message = "m"}};
  batch.metadata = {{"key", "value"}};
  EXPECT_EQ(BatchRecord::FromRecord(batch.ToRecord()).ToRecord(), batch.ToRecord());
  EXPECT_TRUE(BatchRecord::FromRecord(batch.ToRecord()).finished());
}

}  // namespace
}  // namespace moestro::router
