#include "loadtest/bench/benchmark.h"

namespace moestro::bench {

std::vector<BenchSection> ReportSections() {
  return {
      {"ceilings", "Ceilings",
       "The limits of the machine, with all threads. Every benchmark measures its ceiling again in its own rounds; "
       "these rows only show the order of magnitude."},
      {"gemv", "GEMV from DRAM",
       "One token through linear layers, all threads, in a walk over weights in a buffer much larger than the caches. "
       "The ratio is that of weight bytes per second to plain reading of the same buffer."},
      {"table1", "GEMV from cache: the paper's Table 1",
       "The same product again and again, so that weights stay in a cache if they fit. The ratio is the speed relative "
       "to the paper's post-scaling kernel (its figures 9 and 10), whatever the format. GB/s count the weights in each "
       "kernel's own format."},
      {"gemm", "GEMM",
       "Several tokens through linear layers, all threads. The ratio is to chains of the vector dot-product "
       "instruction "
       "on all threads; where kernels use tiles, also to the rate of tiles."},
      {"elementwise", "The other kernels",
       "All threads, inputs streamed from DRAM, outputs kept in cache: bytes read per second relative to plain "
       "reading. "
       "A kernel near 1 never delays a layer; in the engine most of their inputs come from a cache."},
      {"moe-layer", "One MoE layer of DeepSeek-V3",
       "FP8 experts in DRAM, different random ones for every token and every repetition, all threads. Decode is "
       "compared with plain reading, prefill with the slower of reading its weights and multiplying: with few tokens "
       "for each expert reading bounds it."},
      {"attention", "Attention of one decoded token",
       "All threads, one sequence after another so that keys and values come from DRAM."},
      {"lightning", "A batch's decode in one layer of Mixtral 8x7B",
       "Figure 9 of \"MoE-Lightning\" on this machine, all threads: attention of a micro-batch on the CPU, keys and "
       "values from DRAM, beside a copy of these at the 12 GB/s of the paper's bus, and the layer's experts."},
      {"end-to-end", "The engine",
       "Forward passes of a random model of DeepSeek-V3's geometry, larger than the caches, in anonymous memory with "
       "the layout of the weight store. Sequences that are decoded together share its few experts, so their speed-up "
       "over one is larger than in a model with 256 (the paper's figure 16)."},
      {"int8", "Ablation: INT8",
       "INT8 weights and activations (W8A8) beside FP8 and BF16 weights, all from DRAM. \"The article\", here and "
       "below, is Intel's on SGLang's CPU backend (2025); its figures are of 256 cores with AMX. FP8 over INT8 is the "
       "speed of the same products."},
      {"mla", "Ablation: MLA",
       "One decoded token's attention, all threads, latents from DRAM. The article gives its speed-up over a plain "
       "form that it does not show; ours takes one head at a time and packs nothing. The ratio is that of speeds."},
      {"kv-store", "Ablation: storing keys and values",
       "A decoded token's latent and rotated key go into the cache directly, as in the engine, or through a buffer and "
       "a copy. The ratio is that of speeds. All data is in caches."},
      {"fp8-convert", "Ablation: FP8 to BF16",
       "The article's three ways to expand a code and this project's two, all threads, from L1 to L1. The ratio is to "
       "arithmetic that handles every code."},
  };
}

}  // namespace moestro::bench
