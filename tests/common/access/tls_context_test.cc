#include "common/access/tls_context.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "tests/common/access/test_certificate.h"

namespace moestro::access {
namespace {

class TlsContextTest : public ::testing::Test {
 protected:
  TlsContextTest() { WriteCertificate(files_, 1); }
  ~TlsContextTest() override {
    std::filesystem::remove(files_.certificate);
    std::filesystem::remove(files_.key);
  }

  long Serial() const {
    return ASN1_INTEGER_get(X509_get0_serialNumber(SSL_CTX_get0_certificate(context_.Current().get())));
  }

  const TlsFiles files_{.certificate = absl::StrCat(::testing::TempDir(), "tls_context_", getpid(), ".pem"),
                        .key = absl::StrCat(::testing::TempDir(), "tls_context_", getpid(), ".key"),
                        .client_ca = ""};
  TlsContext context_{files_};
};

TEST_F(TlsContextTest, TellsWhenTheCertificateExpires) {
  ASSERT_TRUE(context_.Load().ok());
  EXPECT_EQ(Serial(), 1);
  const absl::Duration left = context_.expires() - absl::Now();
  EXPECT_GT(left, absl::Minutes(50));
  EXPECT_LE(left, absl::Hours(1));
}

TEST_F(TlsContextTest, TakesNewFilesOnceTheyNoLongerChange) {
  ASSERT_TRUE(context_.Load().ok());
  EXPECT_EQ(context_.Reload().value(), false);
  WriteCertificate(files_, 2);
  EXPECT_EQ(context_.Reload().value(), false);
  EXPECT_EQ(context_.Reload().value(), true);
  EXPECT_EQ(Serial(), 2);
  EXPECT_EQ(context_.Reload().value(), false);
}

TEST_F(TlsContextTest, FilesWithAnErrorChangeNothing) {
  ASSERT_TRUE(context_.Load().ok());
  WriteCertificate({.certificate = files_.certificate + ".other", .key = files_.key, .client_ca = ""}, 3);
  EXPECT_EQ(context_.Reload().value(), false);
  const absl::StatusOr<bool> reloaded = context_.Reload();
  EXPECT_TRUE(absl::IsInvalidArgument(reloaded.status())) << reloaded.status();
  EXPECT_EQ(Serial(), 1);
  EXPECT_EQ(context_.Reload().value(), false) << "it is told once";
  std::filesystem::rename(files_.certificate + ".other", files_.certificate);
  EXPECT_EQ(context_.Reload().value(), false);
  EXPECT_EQ(context_.Reload().value(), true);
  EXPECT_EQ(Serial(), 3);
}

TEST(TlsContextWithoutFilesTest, HasNothingToReload) {
  TlsContext context{TlsFiles()};
  EXPECT_FALSE(context.enabled());
  EXPECT_EQ(context.Reload().value(), false);
}

}  // namespace
}  // namespace moestro::access
