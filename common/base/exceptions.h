// Converts exceptions to statuses, for threads that no exception may leave.
#pragma once

#include <exception>
#include <new>
#include <string>
#include <system_error>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"

namespace moestro {

// Runs `work` and returns its status. An exception becomes RESOURCE_EXHAUSTED if memory or threads are lacking, else
// INTERNAL with the exception's text.
inline absl::Status CatchExceptions(absl::FunctionRef<absl::Status()> work) {
  try {
    return work();
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError("out of memory");
  } catch (const std::system_error& error) {
    if (error.code() == std::errc::resource_unavailable_try_again) return absl::ResourceExhaustedError(error.what());
    return absl::InternalError("exception: " + std::string(error.what()));
  } catch (const std::exception& exception) {
    return absl::InternalError("exception: " + std::string(exception.what()));
  } catch (...) {
    return absl::InternalError("exception of unknown type");
  }
}

}  // namespace moestro
