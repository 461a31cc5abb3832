#include "loadtest/bench/benchmark.h"

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
       "Several tokens through linear layers, all threads. The ratio is to chains of the dot-product instruction of "
       "vectors on all threads; where kernels use tiles, also to what these could do."},
      {"elementwise", "The other kernels",
       "All threads, inputs streamed from DRAM, outputs kept in cache: bytes read a second to plain reading. A kernel "
       "near 1 never holds up a layer; in the engine most of their inputs come from a cache."},
      {"moe-layer", "One MoE layer of DeepSeek-V3",
       "FP8 experts in DRAM, random different ones for every token and every repetition, all threads. Decode is "
       "compared "
       "with plain reading, prefill with the dot-product rate, which few tokens an expert cannot reach: it is then "
       "bound "
       "by reading."},
      {"attention", "Attention of one decoded token",
       "All threads, one sequence after another so that keys and values come from DRAM."},
      {"end-to-end", "The engine",
       "Forward passes of a random model of DeepSeek-V3's geometry, larger than the caches, in anonymous memory with "
       "the "
       "layout that the weight store writes. Sequences that are decoded together share its few experts, so their "
       "speed-up over one is more than that of a model with 256 (the paper's figure 16)."},
  };
}

}  // namespace moestro::bench
