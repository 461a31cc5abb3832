// A tree of the files that tell a process of its control groups.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace moestro::testing {

class CgroupTree : public ::testing::Test {
 protected:
  CgroupTree() : root_(::testing::TempDir() + "cgroup-" + std::to_string(getpid())) {}
  ~CgroupTree() override { std::filesystem::remove_all(root_); }

  void Write(const std::string& path, const std::string& text) const {
    std::filesystem::create_directories(std::filesystem::path(root_ + path).parent_path());
    std::ofstream(root_ + path) << text;
  }

  void MakeVersion2(const std::string& group) const {
    Write("/proc/self/cgroup", "0::" + group + "\n");
    Write("/proc/self/mountinfo",
          "23 1 0:22 / /proc rw shared:5 - proc proc rw\n"
          "31 23 0:28 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n");
  }

  const std::string root_;
};

}  // namespace moestro::testing
