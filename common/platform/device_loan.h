// A device that its owner lends to another process while idle. Both agree through two byte locks on a file, which the
// kernel releases when a process dies:
//   byte 0  the device: held by the process that uses it
//   byte 1  the owner's wish: the owner has work, and the borrower must return the device
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "common/platform/lock_file.h"

namespace moestro {

class LentDevice {  // the owner's side, for one thread
 public:
  // From now on, until destruction, others may borrow the device. INVALID_ARGUMENT if the file cannot be made.
  static absl::StatusOr<std::unique_ptr<LentDevice>> Lend(const std::string& path);
  ~LentDevice();

  // Requests the device, until Return. True if the owner has it. Otherwise call again: a borrower is about to return
  // it.
  bool Claim();
  void Return();

 private:
  LentDevice(std::string path, int descriptor) : path_(std::move(path)), file_(descriptor) {}

  const std::string path_;
  LockFile file_;
  bool claimed_ = false;
};

class DeviceLoan {  // the borrower's side: holds the device until destruction. Thread-safe.
 public:
  // Null if nobody lends a device there, or it is in use.
  static std::shared_ptr<const DeviceLoan> Borrow(const std::string& path);

  // The owner waits for the device.
  bool wanted() const;

  explicit DeviceLoan(int descriptor) : file_(descriptor) {}  // for Borrow

 private:
  LockFile file_;
};

}  // namespace moestro
