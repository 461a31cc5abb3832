#include "common/platform/device_loan.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace moestro {
namespace {

constexpr int64_t kDevice = 0;
constexpr int64_t kWish = 1;

}  // namespace

absl::StatusOr<std::unique_ptr<LentDevice>> LentDevice::Lend(const std::string& path) {
  const int descriptor = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (descriptor < 0) return absl::InvalidArgumentError(absl::StrCat("cannot make ", path, ": ", strerror(errno)));
  return std::unique_ptr<LentDevice>(new LentDevice(path, descriptor));
}

LentDevice::~LentDevice() { unlink(path_.c_str()); }

bool LentDevice::Claim() {
  if (!claimed_) claimed_ = file_.TryLock(kWish) && file_.TryLock(kDevice);
  return claimed_;
}

void LentDevice::Return() {
  file_.Unlock(kDevice);
  file_.Unlock(kWish);
  claimed_ = false;
}

std::shared_ptr<const DeviceLoan> DeviceLoan::Borrow(const std::string& path) {
  const int descriptor = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (descriptor < 0) return nullptr;
  auto loan = std::make_shared<DeviceLoan>(descriptor);
  // Checked twice. The first check leaves an existing wish undisturbed; the second sees a wish that arrived in between.
  if (loan->wanted() || !loan->file_.TryLock(kDevice) || loan->wanted()) return nullptr;
  return loan;
}

bool DeviceLoan::wanted() const { return file_.IsLocked(kWish); }

}  // namespace moestro
