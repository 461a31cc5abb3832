#include "common/batch/journal.h"

#include <sys/resource.h>

#include <csignal>

#include "common/batch/result_file.h"
#include "tests/common/batch/batch_fixture.h"

namespace moestro::batch {
namespace {

using ::testing::HasSubstr;

class JournalTest : public BatchTest {
 protected:
  static Result Answer(size_t index, bool ok = true) {
    return {.ok = ok, .generated_tokens = 10, .line = R"({"custom_id":")" + std::to_string(index) + R"("})"};
  }
  std::string text() { return Read(Path("out.journal")); }
};

TEST_F(JournalTest, KeepsResultsOverRestarts) {
  const auto file = MakeRequests(3);
  {
    const auto journal = OpenJournal(*file);
    EXPECT_TRUE(journal->Append(2, Answer(2)).ok());
    EXPECT_TRUE(journal->Append(0, Answer(0, false)).ok());
  }
  const auto journal = OpenJournal(*file);
  EXPECT_EQ(journal->counts().done, 2u);
  EXPECT_EQ(journal->counts().failed, 1u);
  EXPECT_EQ(journal->counts().generated_tokens, 20u);
  EXPECT_EQ(journal->damaged(), 0u);
  EXPECT_TRUE(journal->Has(0) && !journal->Has(1) && journal->Has(2));
  EXPECT_FALSE(journal->Succeeded(0));
  EXPECT_EQ(*journal->Read(2), Answer(2).line);
}

// A process may be killed after any byte of a write.
TEST_F(JournalTest, RecoversFromEveryTornEnd) {
  const auto file = MakeRequests(3);
  size_t first_end = 0;
  {
    const auto journal = OpenJournal(*file);
    EXPECT_TRUE(journal->Append(1, Answer(1)).ok());
    first_end = text().size();
    EXPECT_TRUE(journal->Append(0, Answer(0)).ok());
  }
  const std::string whole = text();
  for (size_t size = 0; size < whole.size(); ++size) {
    Write(Path("out.journal"), whole.substr(0, size));
    {
      const auto journal = OpenJournal(*file);
      EXPECT_EQ(journal->Has(1), size >= first_end) << size;
      EXPECT_FALSE(journal->Has(0)) << size;
      ASSERT_TRUE(journal->Append(0, Answer(0)).ok());
      ASSERT_TRUE(journal->Append(2, Answer(2)).ok());
    }
    const auto journal = OpenJournal(*file);
    EXPECT_EQ(journal->damaged(), 0u) << size;
    EXPECT_EQ(*journal->Read(0), Answer(0).line) << size;
    EXPECT_EQ(*journal->Read(2), Answer(2).line) << size;
    EXPECT_EQ(journal->counts().done, size >= first_end ? 3u : 2u) << size;
  }
}

// Whatever byte a disk changes, no result is wrong: it is as it was, or it is done again.
TEST_F(JournalTest, NoChangedByteBecomesAResult) {
  const auto file = MakeRequests(3);
  size_t records = 0;
  {
    const auto journal = OpenJournal(*file);
    records = text().size();
    for (size_t i = 0; i < 3; ++i) EXPECT_TRUE(journal->Append(i, Answer(i)).ok());
  }
  const std::string whole = text();
  for (size_t at = records; at < whole.size(); ++at) {
    for (const char bad : {'\0', '\n', 'x', '7'}) {
      if (whole[at] == bad) continue;
      std::string changed = whole;
      changed[at] = bad;
      Write(Path("out.journal"), changed);
      const auto journal = OpenJournal(*file);
      EXPECT_LT(journal->counts().done, 3u) << at;
      EXPECT_GE(journal->counts().done, 1u) << at;
      for (size_t i = 0; i < 3; ++i) {
        if (!journal->Has(i)) continue;
        EXPECT_EQ(*journal->Read(i), Answer(i).line) << at;
      }
    }
  }
}

TEST_F(JournalTest, CountsWhatWasUnderWayWhenAProcessEnded) {
  const auto file = MakeRequests(4);
  for (int deaths = 0; deaths < 3; ++deaths) {
    const auto journal = OpenJournal(*file);
    EXPECT_EQ(journal->DeathsOf(0).beside_others, deaths);
    EXPECT_EQ(journal->DeathsOf(0).alone, 0);
    EXPECT_EQ(journal->DeathsOf(1).alone, deaths);
    EXPECT_EQ(journal->DeathsOf(1).beside_others, 0);
    EXPECT_EQ(journal->Suspects(), deaths == 0 ? std::vector<size_t>() : (std::vector<size_t>{0, 1}));
    EXPECT_EQ(journal->damaged(), 0u);
    EXPECT_EQ(journal->counts().done, 0u);
    for (const size_t index : {0, 1, 2, 3}) ASSERT_TRUE(journal->Begin(index, /*alone=*/index % 2 == 1).ok());
    EXPECT_EQ(journal->DeathsOf(0).beside_others, deaths) << "this process has not ended yet";
    ASSERT_TRUE(journal->Leave(2, false).ok());
    ASSERT_TRUE(journal->Leave(3, true).ok());
  }
  {
    const auto journal = OpenJournal(*file);
    ASSERT_TRUE(journal->Append(0, Answer(0)).ok());
  }
  const auto journal = OpenJournal(*file);
  EXPECT_EQ(*journal->Read(0), Answer(0).line);
  EXPECT_EQ(journal->Suspects(), (std::vector<size_t>{1})) << "what has its result is none";
}

TEST_F(JournalTest, ALostMarkBlamesNobody) {
  const auto file = MakeRequests(1);
  { ASSERT_TRUE(OpenJournal(*file)->Leave(0, true).ok()); }
  { ASSERT_TRUE(OpenJournal(*file)->Begin(0, true).ok()); }
  EXPECT_EQ(OpenJournal(*file)->DeathsOf(0).alone, 1);
}

TEST_F(JournalTest, ALineCountsOnce) {
  const auto file = MakeRequests(2);
  {
    const auto journal = OpenJournal(*file);
    EXPECT_TRUE(journal->Append(0, Answer(0)).ok());
  }
  const std::string before = text();
  const std::string record = before.substr(before.find('\n') + 1);
  Write(Path("out.journal"), before + record);
  const auto journal = OpenJournal(*file);
  EXPECT_EQ(journal->counts().done, 1u);
  EXPECT_EQ(journal->damaged(), 1u);
}

TEST_F(JournalTest, RefusesAChangedFileByName) {
  { OpenJournal(*MakeRequests(2)); }
  const auto changed = MakeRequests(3);
  const absl::Status status = Journal::Open(Path("out.journal"), *changed).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr(Path("in.jsonl") + ": has changed"), HasSubstr("3 requests"), HasSubstr("2 in")));
}

TEST_F(JournalTest, RefusesAStrangeFile) {
  const auto file = MakeRequests(1);
  for (const char* text :
       {"something else\n", "moestro-batch-journal 1 {}\n", "moestro-batch-journal 1 {\"bytes\":1\n"}) {
    Write(Path("out.journal"), text);
    EXPECT_EQ(Journal::Open(Path("out.journal"), *file).status().code(), absl::StatusCode::kDataLoss) << text;
    EXPECT_EQ(Read(Path("out.journal")), text);
  }
}

TEST_F(JournalTest, OneProcessAtATime) {
  const auto file = MakeRequests(1);
  const auto journal = OpenJournal(*file);
  const absl::Status second = Journal::Open(Path("out.journal"), *file).status();
  EXPECT_EQ(second.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(second.message()), HasSubstr("another process"));
}

// As on a full disk: a write that is cut short.
TEST_F(JournalTest, AWriteThatFailsLeavesTheJournalAsItWas) {
  const auto file = MakeRequests(2);
  const auto journal = OpenJournal(*file);
  ASSERT_TRUE(journal->Append(0, Answer(0)).ok());
  const std::string before = text();
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit old{};
  getrlimit(RLIMIT_FSIZE, &old);
  const rlimit small{.rlim_cur = before.size() + 10, .rlim_max = old.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const absl::Status status = journal->Append(1, Answer(1));
  setrlimit(RLIMIT_FSIZE, &old);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr(Path("out.journal")));
  EXPECT_EQ(text(), before);
  EXPECT_FALSE(journal->Has(1));
  EXPECT_TRUE(journal->Append(1, Answer(1)).ok());
  EXPECT_EQ(*journal->Read(1), Answer(1).line);
}

TEST_F(JournalTest, ResultsAreInTheOrderOfTheRequests) {
  const auto file = MakeRequests(4);
  const auto journal = OpenJournal(*file);
  for (const size_t index : {3, 1, 0, 2}) ASSERT_TRUE(journal->Append(index, Answer(index, index != 1)).ok());
  ASSERT_TRUE(WriteResults(*file, *journal, {.output = Path("out.jsonl")}).ok());
  const auto lines = [](std::initializer_list<size_t> indices) {
    std::string text;
    for (const size_t index : indices) text += Answer(index).line + "\n";
    return text;
  };
  EXPECT_EQ(Read(Path("out.jsonl")), lines({0, 1, 2, 3}));
  ASSERT_TRUE(WriteResults(*file, *journal, {.output = Path("out.jsonl"), .errors = Path("errors.jsonl")}).ok());
  EXPECT_EQ(Read(Path("out.jsonl")), lines({0, 2, 3}));
  EXPECT_EQ(Read(Path("errors.jsonl")), lines({1}));
  EXPECT_FALSE(std::filesystem::exists(Path("out.jsonl.partial")));
  const absl::Status status = WriteResults(*file, *journal, {.output = Path("none/out.jsonl")});
  EXPECT_THAT(std::string(status.message()), HasSubstr(Path("none/out.jsonl")));
}

TEST_F(JournalTest, NoFileWithoutErrors) {
  const auto file = MakeRequests(1);
  const auto journal = OpenJournal(*file);
  ASSERT_TRUE(journal->Append(0, Answer(0)).ok());
  ASSERT_TRUE(WriteResults(*file, *journal, {.output = Path("out.jsonl"), .errors = Path("errors.jsonl")}).ok());
  EXPECT_FALSE(std::filesystem::exists(Path("errors.jsonl")));
  EXPECT_FALSE(std::filesystem::exists(Path("errors.jsonl.partial")));
}

}  // namespace
}  // namespace moestro::batch
