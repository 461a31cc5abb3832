// Names for shared-memory objects of one test: unique to the process that runs it, unlinked at the end.
#pragma once

#include <unistd.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "common/platform/shared_memory.h"

namespace moestro::testing {

class TestName {
 public:
  static std::string Prefix() { return absl::StrCat("moestro-test.", getpid(), "."); }
  explicit TestName(const std::string& suffix) : name_(absl::StrCat(Prefix(), suffix)) {}
  ~TestName() { SharedMemory::Unlink(name_).IgnoreError(); }
  TestName(const TestName&) = delete;
  TestName& operator=(const TestName&) = delete;

  operator const std::string&() const { return name_; }
  const std::string& str() const { return name_; }

 private:
  std::string name_;
};

}  // namespace moestro::testing
