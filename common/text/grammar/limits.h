// Limits that keep a client's grammar or schema from occupying threads and memory.
#pragma once

#include <cstddef>
#include <cstdint>

namespace moestro::text::grammar {

// Text of a constraint. Published tool schemas stay below 64 KiB.
inline constexpr size_t kMaxConstraintBytes = 256 * 1024;
// Groups in each other, in a GBNF grammar or a regular expression.
inline constexpr int kMaxNesting = 100;
inline constexpr size_t kMaxRules = 16 * 1024;
// Of the text after %until and %without.
inline constexpr size_t kMaxUntilBytes = 256;
// Counts of a repetition, such as maxLength and maxItems.
inline constexpr int64_t kMaxRepetitions = 16 * 1024;
// States and edges of a compiled grammar: some 10 MB at most.
inline constexpr size_t kMaxStates = 256 * 1024;
inline constexpr size_t kMaxEdges = 512 * 1024;
// Nodes of a grammar and the bytes of their literals, before it is compiled; an estimate: 20 MB, and as much while it
// grows.
inline constexpr size_t kMaxNodes = 96 * 1024;
inline constexpr size_t kMaxNodeBytes = 4 * 1024 * 1024;
// Values of JSON, and sixteenths of bytes, that the copies of a schema and its parts may take at the same time.
inline constexpr int64_t kMaxHeldValues = 256 * 1024;
// Steps that compiling may take, from the text on: well below a second.
inline constexpr int64_t kMaxCompileSteps = 8 * 1024 * 1024;
// Where an output can stand in a grammar at the same time. A grammar of a language for programs needs tens.
inline constexpr size_t kMaxPositions = 4096;
// What a matcher keeps between two masks: sets of callers, configurations, and the positions in both, of 8 bytes each.
// Beyond these it forgets what it can compute again.
inline constexpr size_t kKeptCalls = 16 * 1024;
inline constexpr size_t kKeptConfigurations = 4096;
inline constexpr size_t kKeptPositions = 512 * 1024;
// Within one mask it may reach this multiple of them.
inline constexpr size_t kMaskGrowth = 8;
// Positions and tokens that one mask may visit: about a second. A mask of JSON visits some ten thousand.
inline constexpr int64_t kMaxMaskSteps = 20 * 1000 * 1000;
// What the masks of one request may visit in all: this, and as much more for each of its tokens. So a request pays two
// masks of the dearest kind, and some 10 ms a token on average.
inline constexpr int64_t kMaskStepsOfRequest = 2 * kMaxMaskSteps;
inline constexpr int64_t kMaskStepsOfToken = 200 * 1000;
// Beyond these, work waits for a thread that stands back for others: some 10 ms for a mask, of which ordinary
// constraints need far less, and some 2 ms for compiling, which is done once.
inline constexpr int64_t kQuickMaskSteps = 200 * 1000;
inline constexpr int64_t kQuickCompileSteps = 32 * 1024;

}  // namespace moestro::text::grammar
