#include "services/cli/paper/moe_lightning/published.h"

namespace moestro::cli {

std::span<const PublishedSetting> PublishedSettings() {
  static const auto* const settings = new std::vector<PublishedSetting>{
      {"S1 (p)",
       "Fig. 7",
       "gcp-t4",
       "mixtral-8x7b",
       418,
       {{32, 15.609, 504, 36, true},
        {64, 23.997, 504, 36, true},
        {128, 30.122, 504, 36, true},
        {256, 33.938, 504, 36, true}}},
      {"S1",
       "Fig. 7",
       "gcp-t4",
       "mixtral-8x7b",
       77,
       {{32, 63.047, 3097, 164}, {64, 101.33, 3097, 164}, {128, 97.735, 2296, 164}, {256, 96.867, 1485, 100}}},
      {"S1 reasoning (p)", "Table 4", "gcp-t4", "mixtral-8x7b", 256, {{50, 26.349, 936, 36}}},
      {"S1 summarisation (p)", "Table 4", "gcp-t4", "mixtral-8x7b", 1984, {{64, 4.52, 76, 4}}},
      {"S2 (p)",
       "Fig. 7",
       "gcp-l4",
       "mixtral-8x7b",
       418,
       {{32, 53.714, 1088, 68, true},
        {64, 67.369, 1020, 68, true},
        {128, 78.972, 884, 68, true},
        {256, 78.6, 748, 68, true}}},
      {"S2",
       "Fig. 7",
       "gcp-l4",
       "mixtral-8x7b",
       77,
       {{32, 203.0, 4494, 324}, {64, 294.5, 3616, 228}, {128, 217.54, 2608, 164}, {256, 167.92, 1560, 132}}},
      {"S2 reasoning (p)", "Table 4", "gcp-l4", "mixtral-8x7b", 256, {{50, 105.29, 1500, 100}}},
      {"S2 summarisation (p)", "Table 4", "gcp-l4", "mixtral-8x7b", 1984, {{64, 12.393, 288, 8}}},
      {"S6 (p)",
       "Fig. 7",
       "gcp-2xt4",
       "mixtral-8x22b",
       417,
       {{32, 5.383, 252, 36, true}, {64, 7.3336, 252, 36}, {128, 7.7513, 252, 36}, {256, 9.1276, 252, 36, true}}},
      {"S7 (p)",
       "Fig. 7",
       "gcp-4xt4",
       "mixtral-8x22b",
       417,
       {{32, 14.883, 648, 36, true}, {64, 22.348, 612, 36}, {128, 26.228, 540, 36}, {256, 25.813, 468, 36, true}}},
      {"S8",
       "Fig. 8",
       "gcp-2xt4",
       "dbrx",
       77,
       {{32, 34.037, 2652, 68, true}, {64, 36.235, 2652, 68}, {128, 29.672, 2244, 68}, {256, 25.865, 1344, 36, true}}},
      {"S9",
       "Fig. 8",
       "gcp-4xt4",
       "dbrx",
       77,
       {{32, 71.543, 4352, 68, true}, {64, 83.582, 3604, 68}, {128, 82.981, 2440, 68}, {256, 59.455, 1836, 36, true}}}};
  return *settings;
}

std::span<const PublishedBaseline> PublishedBaselines() {
  static constexpr PublishedBaseline kBaselines[] = {
      {"S1 (p)", "Fig. 7", "FlexGen", "gcp-t4", 418, Schedule::kFlexGen, {32, 12.1, 1280, 32}},
      {"S1 (p)", "Fig. 7", "FlexGen", "gcp-t4", 418, Schedule::kFlexGen, {64, 12.3, 1248, 16}},
      {"S1 (p)", "Fig. 7", "FlexGen", "gcp-t4", 418, Schedule::kFlexGen, {128, 9.5, 1112, 8}},
      {"S1 (p)", "Fig. 7", "FlexGen", "gcp-t4", 418, Schedule::kFlexGen, {256, 9.6, 904, 8}},
      {"S1 reasoning (p)", "Table 4", "FlexGen(c)", "gcp-t4", 256, Schedule::kFlexGenCpu, {50, 16.903, 1952, 32}},
      {"S1 reasoning (p)", "Table 4", "FlexGen", "gcp-t4", 256, Schedule::kFlexGen, {50, 22.691, 1952, 32}},
      {"S1 reasoning (p)", "Table 4", "DeepSpeed", "gcp-t4", 256, Schedule::kWholeLayer, {50, 11.832, 102, 102}},
      {"S2 reasoning (p)", "Table 4", "FlexGen(c)", "gcp-l4", 256, Schedule::kFlexGenCpu, {50, 20.015, 2112, 64}},
      {"S2 reasoning (p)", "Table 4", "FlexGen", "gcp-l4", 256, Schedule::kFlexGen, {50, 50.138, 2112, 64}},
      {"S2 reasoning (p)", "Table 4", "DeepSpeed", "gcp-l4", 256, Schedule::kWholeLayer, {50, 18.589, 156, 156}},
      {"S1 summarisation (p)", "Table 4", "FlexGen(c)", "gcp-t4", 1984, Schedule::kFlexGenCpu, {64, 2.614, 276, 3}},
      {"S1 summarisation (p)", "Table 4", "FlexGen", "gcp-t4", 1984, Schedule::kFlexGen, {64, 3.868, 276, 3}},
      {"S1 summarisation (p)", "Table 4", "DeepSpeed", "gcp-t4", 1984, Schedule::kWholeLayer, {64, 0.965, 8, 8}},
      {"S2 summarisation (p)", "Table 4", "FlexGen(c)", "gcp-l4", 1984, Schedule::kFlexGenCpu, {64, 4.307, 288, 8}},
      {"S2 summarisation (p)", "Table 4", "FlexGen", "gcp-l4", 1984, Schedule::kFlexGen, {64, 7.14, 288, 8}},
      {"S2 summarisation (p)", "Table 4", "DeepSpeed", "gcp-l4", 1984, Schedule::kWholeLayer, {64, 1.447, 12, 12}},
      {"S1 (p)",
       "Table 5",
       "FlexGen with MoE-Lightning's policy",
       "gcp-t4",
       418,
       Schedule::kFlexGen,
       {128, 16.816, 504, 36}},
      {"S1 (p)",
       "Table 5",
       "FlexGen with this policy and more requests",
       "gcp-t4",
       418,
       Schedule::kFlexGen,
       {128, 20.654, 1116, 36}},
  };
  return kBaselines;
}

std::span<const PublishedLatency> PublishedLatencies() {
  static constexpr PublishedLatency kLatencies[] = {
      {32, .0122, {.00141, .00274, .00546, .0109, .0218}, {.00044, .00067, .00173, .003, .00594}},
      {64, .0123, {.00274, .00546, .0109, .02176, .04351}, {.00074, .00148, .00298, .00589, .0116}},
      {128, .0125, {.00546, .01092, .02178, .0435, .08699}, {.00157, .00298, .00632, .0114, .0232}},
      {256, .013, {.01089, .02177, .04349, .08697, .17388}, {.00371, .00673, .01178, .02206, .04458}}};
  return kLatencies;
}

}  // namespace moestro::cli
