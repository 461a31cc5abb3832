// A device of one process that another may use while the first has nothing to do on it. They agree on a file with two
// locks, of which the kernel lets go when a process dies:
//   byte 0  the device: whoever uses it
//   byte 1  the owner's wish: it has work, and the borrower shall give the device back
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "common/platform/lock_file.h"

namespace moestro {

class LentDevice {  // the owner's side, for one thread
 public:
  // Others may borrow the device from now on, until destruction. INVALID_ARGUMENT if the file cannot be made.
  static absl::StatusOr<std::unique_ptr<LentDevice>> Lend(const std::string& path);
  ~LentDevice();

  // Wants the device, until Return. True if it has it; else ask again: a borrower is about to let go.
  bool Claim();
  void Return();

 private:
  LentDevice(std::string path, int descriptor) : path_(std::move(path)), file_(descriptor) {}

  const std::string path_;
  LockFile file_;
  bool claimed_ = false;
};

class DeviceLoan {  // the borrower's side: has the device until destruction. Thread-safe.
 public:
  // Null if nobody lends a device there, or it is not to be had.
  static std::shared_ptr<const DeviceLoan> Borrow(const std::string& path);

  // Its owner waits for it.
  bool wanted() const;

  explicit DeviceLoan(int descriptor) : file_(descriptor) {}  // for Borrow

 private:
  LockFile file_;
};

}  // namespace moestro
