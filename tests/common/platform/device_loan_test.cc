#include "common/platform/device_loan.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>

#include "tests/common/platform/child_process.h"

namespace moestro {
namespace {

using moestro::testing::ChildProcess;

class DeviceLoanTest : public ::testing::Test {
 protected:
  const std::string path_ = ::testing::TempDir() + "device-loan-" + std::to_string(getpid()) + ".lock";
};

TEST_F(DeviceLoanTest, ADeviceIsBorrowedWhileItsOwnerHasNoWork) {
  const auto owner = LentDevice::Lend(path_).value();
  auto loan = DeviceLoan::Borrow(path_);
  ASSERT_NE(loan, nullptr);
  EXPECT_FALSE(loan->wanted());
  EXPECT_EQ(DeviceLoan::Borrow(path_), nullptr);  // by one at a time

  EXPECT_FALSE(owner->Claim());
  EXPECT_TRUE(loan->wanted());
  EXPECT_FALSE(owner->Claim());
  loan.reset();
  EXPECT_EQ(DeviceLoan::Borrow(path_), nullptr);  // it is the owner's turn
  EXPECT_TRUE(owner->Claim());
  EXPECT_TRUE(owner->Claim());
  EXPECT_EQ(DeviceLoan::Borrow(path_), nullptr);
  owner->Return();
  EXPECT_NE(DeviceLoan::Borrow(path_), nullptr);
}

TEST_F(DeviceLoanTest, AnOwnerThatGivesUpItsWish) {
  const auto owner = LentDevice::Lend(path_).value();
  const auto loan = DeviceLoan::Borrow(path_);
  EXPECT_FALSE(owner->Claim());
  owner->Return();
  EXPECT_FALSE(loan->wanted());
}

TEST_F(DeviceLoanTest, NobodyLends) {
  EXPECT_EQ(DeviceLoan::Borrow(path_), nullptr);
  LentDevice::Lend(path_).value().reset();
  EXPECT_EQ(DeviceLoan::Borrow(path_), nullptr);
  EXPECT_TRUE(absl::IsInvalidArgument(LentDevice::Lend("/no/such/folder/x.lock").status()));
}

TEST_F(DeviceLoanTest, ADeadBorrowerHasGivenItBack) {
  const auto owner = LentDevice::Lend(path_).value();
  ChildProcess borrower([&](const ChildProcess::Parent& parent) {
    const auto loan = DeviceLoan::Borrow(path_);
    parent.Send(loan == nullptr ? 0 : 1);
    parent.Sleep();
    return 0;
  });
  ASSERT_EQ(borrower.Receive(), 1);
  EXPECT_FALSE(owner->Claim());
  borrower.Kill();
  EXPECT_TRUE(owner->Claim());
}

}  // namespace
}  // namespace moestro
