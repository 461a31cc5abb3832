// What a server refuses; tests/integration/test_access.py has certificates that it takes.
#include "common/access/tls_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"

namespace moestro::access {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class TlsFilesTest : public ::testing::Test {
 protected:
  ~TlsFilesTest() override { std::filesystem::remove(path_); }

  void Write(mode_t mode) const {
    std::ofstream(path_) << "-----BEGIN NOTHING-----\n";
    chmod(path_.c_str(), mode);
  }
  static std::string Error(const TlsFiles& files) { return std::string(CheckTlsFiles(files).message()); }

  const std::string path_ = absl::StrCat(::testing::TempDir(), "tls_files_", getpid(), ".pem");
};

TEST_F(TlsFilesTest, NoneIsNoTls) {
  EXPECT_FALSE(TlsFiles().enabled());
  EXPECT_EQ(CheckTlsFiles({}), absl::OkStatus());
}

TEST_F(TlsFilesTest, OneNeedsTheOthers) {
  EXPECT_THAT(Error({.certificate = "", .key = "k", .client_ca = ""}),
              AllOf(HasSubstr("--tls-key"), HasSubstr("--tls-cert")));
  EXPECT_THAT(Error({.certificate = "", .key = "", .client_ca = "c"}), HasSubstr("--tls-client-ca"));
  EXPECT_THAT(Error({.certificate = "c", .key = "", .client_ca = ""}), HasSubstr("needs --tls-key"));
}

TEST_F(TlsFilesTest, APrivateKeyIsPrivate) {
  const TlsFiles files{.certificate = path_, .key = path_, .client_ca = ""};
  EXPECT_TRUE(absl::IsNotFound(CheckTlsFiles(files)));
  Write(0644);
  EXPECT_TRUE(absl::IsPermissionDenied(CheckTlsFiles(files)));
  EXPECT_THAT(Error(files), AllOf(HasSubstr("--tls-key " + path_), HasSubstr("chmod 600")));
}

TEST_F(TlsFilesTest, WhatIsNoCertificateIsRefused) {
  Write(0600);
  EXPECT_THAT(Error({.certificate = path_, .key = path_, .client_ca = ""}),
              AllOf(HasSubstr("--tls-cert " + path_), HasSubstr("PEM")));
}

}  // namespace
}  // namespace moestro::access
