#include "services/cli/bench/benchmark.h"

namespace moestro::bench {

std::vector<Section> ReportSections() {
  return {
      {"ceilings", "Ceilings",
       "What the machine does at most, all threads together. Every benchmark measures its ceiling again, in its own "
       "rounds; these lines only show the order of magnitude."},
      {"gemv", "GEMV from DRAM",
       "One token through linear layers, all threads, weights walked over in a buffer much larger than the caches. The "
       "ratio is weight bytes a second to plain reading of the same buffer."},
      {"table1", "GEMV from cache: the paper's Table 1",
       "The same product again and again, so that weights lie in a cache if they fit it. The ratio is how many times "
       "as "
       "fast as the paper's post-scaling kernel (its figures 9 and 10) a product is done, whatever its format. GB/s "
       "count the weights in each kernel's own format."},
      {"gemm", "GEMM",
       "Several tokens through linear layers, all threads. The ratio is to chains of the dot-product instruction on "
       "all "
       "threads."},
  };
}

}  // namespace moestro::bench
