// MOE_CHECK: for bugs in this program only, never for bad input (that is an absl::Status).
#pragma once

#include <cstdio>
#include <cstdlib>

#define MOE_CHECK(condition)                                                                             \
  do {                                                                                                   \
    if (!(condition)) [[unlikely]] {                                                                     \
      std::fprintf(stderr, "%s:%d: internal error: %s does not hold\n", __FILE__, __LINE__, #condition); \
      std::abort();                                                                                      \
    }                                                                                                    \
  } while (false)
