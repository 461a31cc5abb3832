// Runs tests on a GPU. A fault of the device would fail all tests that follow, so the process ends with the test that
// has it: tests/cuda/run starts another one for the rest.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "tests/cuda/device.h"

namespace moestro::cuda {
namespace {

class EndsWithAFault : public testing::EmptyTestEventListener {
  void OnTestEnd(const testing::TestInfo& /*test*/) override {
    Synchronize();  // may tell an error that is over
    const std::string error = Synchronize();
    if (error.empty()) return;
    std::fflush(stdout);
    std::fprintf(stderr, "the device is lost: %s\n", error.c_str());
    std::_Exit(1);
  }
};

}  // namespace
}  // namespace moestro::cuda

int main(int argc, char** argv) {
  testing::InitGoogleMock(&argc, argv);
  testing::UnitTest::GetInstance()->listeners().Append(new moestro::cuda::EndsWithAFault);  // which owns it
  return RUN_ALL_TESTS();
}
