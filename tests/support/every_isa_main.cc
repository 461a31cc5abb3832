// The main function of tests marked EVERY_ISA.
#include <gmock/gmock.h>

#include <iostream>

#include "tests/support/test_kernels.h"

int main(int argc, char** argv) {
  constexpr int kSkipped = 77;  // SKIP_RETURN_CODE of moestro_test
  testing::InitGoogleMock(&argc, argv);
  if (const absl::Status status = moestro::SelectTestKernels().status(); !status.ok()) {
    std::cout << status << '\n';
    return absl::IsFailedPrecondition(status) ? kSkipped : EXIT_FAILURE;
  }
  return RUN_ALL_TESTS();
}
