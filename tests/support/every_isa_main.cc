// The main function of tests marked EVERY_ISA.
#include <gmock/gmock.h>

#include <iostream>

#include "tests/support/test_kernels.h"

int main(int argc, char** argv) {
  constexpr int kSkipped = 77;  // SKIP_RETURN_CODE of moestro_test
  testing::InitGoogleMock(&argc, argv);
  const absl::StatusOr<const moestro::CpuKernels*> kernels = moestro::SelectTestKernels();
  if (!kernels.ok()) {
    std::cout << kernels.status() << '\n';
    return absl::IsFailedPrecondition(kernels.status()) ? kSkipped : EXIT_FAILURE;
  }
  if ((*kernels)->isa == moestro::kAmxOnModel && moestro::HasTiles()) {
    std::cout << "this CPU has tiles: the same tests run on amx\n";
    return kSkipped;
  }
  return RUN_ALL_TESTS();
}
