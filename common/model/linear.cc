#include "common/model/linear.h"

#include <algorithm>

#include "common/base/math.h"
#include "common/kernels/cpu/fp8_inputs.h"

namespace moestro::model {

int64_t TaskGroups(int64_t groups, int threads) {
  constexpr int64_t kTasksPerThread = 4;  // enough tasks that workers finish at about the same time
  return std::clamp<int64_t>(groups / (kTasksPerThread * threads), 1, kMaxTaskGroups);
}

IndexRange TaskRows(int64_t rows, IndexRange groups, int64_t task, int64_t task_groups) {
  const int64_t begin = groups.begin + task * task_groups;
  const int64_t end = std::min(begin + task_groups, groups.end);
  return {begin * kRowGroup, std::min(end * kRowGroup, rows)};
}

void EncodeRow(const CpuKernels& kernels, InputCoding coding, const uint16_t* x, int64_t cols, uint8_t* out) {
  if (coding == InputCoding::kFp8) return EncodeFp8(x, cols, out);
  kernels.encode_inputs(coding, x, cols, out);
}

void MultiplyRows(const CpuKernels& kernels, const PackedMatrix& weights, const LinearInput& input, IndexRange rows,
                  float* y, int64_t y_stride, bool add) {
  const InputCoding coding = InputsOf(kernels, weights);
  if (coding == InputCoding::kNone) {
    const auto linear = add ? kernels.linear_add : kernels.linear;
    return linear(weights, input.x, input.stride, input.rows, y, y_stride, rows.begin, rows.end);
  }
  const int64_t row_bytes = CodedRowBytes(coding, weights.cols);
  const auto multiply = [&](const uint8_t* coded, int64_t count, float* to) {
    if (coding == InputCoding::kFp8) {
      return MultiplyFp8(kernels, weights, coded, count, to, y_stride, rows.begin, rows.end, add);
    }
    kernels.linear_coded(weights, coded, row_bytes, count, to, y_stride, rows.begin, rows.end, add);
  };
  if (input.coding == coding) return multiply(input.coded, input.rows, y);
  alignas(kCodedRowAlignment) uint8_t coded[kMaxTaskCodes];
  const int64_t batch = kMaxTaskCodes / row_bytes;
  for (int64_t first = 0; first < input.rows; first += batch) {
    const int64_t count = std::min(batch, input.rows - first);
    for (int64_t i = 0; i < count; ++i) {
      EncodeRow(kernels, coding, input.x + (first + i) * input.stride, weights.cols, coded + i * row_bytes);
    }
    multiply(coded, count, y + first * y_stride);
  }
}

LinearInput CodeInputs(const EngineContext& context, const PackedMatrix& weights, LinearInput input, uint8_t* room) {
  const InputCoding coding = InputsOf(context.kernels, weights);
  if (coding == InputCoding::kNone) return input;
  const int64_t row_bytes = CodedRowBytes(coding, weights.cols);
  context.pool.Run(input.rows, [&](int64_t row, int) {
    EncodeRow(context.kernels, coding, input.x + row * input.stride, weights.cols, room + row * row_bytes);
  });
  input.coding = coding;
  input.coded = room;
  return input;
}

namespace {

// With fewer, coding them in each task takes less than another run of the pool.
constexpr int64_t kManyRows = 5;

}  // namespace

void RunLinears(const EngineContext& context, std::span<const LinearJob> jobs, uint8_t* room) {
  const auto takes_codes = [&](const LinearJob& job) {
    return job.input.rows >= kManyRows && InputsOf(context.kernels, job.weights) != InputCoding::kNone;
  };
  // Codes of one input, which most jobs share.
  LinearInput coded;
  int64_t coded_cols = 0;
  const auto first = std::ranges::find_if(jobs, takes_codes);
  if (room != nullptr && first != jobs.end()) {
    coded = CodeInputs(context, first->weights, first->input, room);
    coded_cols = first->weights.cols;
  }
  const auto groups_of = [&](const LinearJob& job, int domain) {
    return EvenPart(RowGroups(job.weights), domain, context.pool.domains());
  };
  int64_t all_groups = 0;
  for (const LinearJob& job : jobs) all_groups += RowGroups(job.weights);
  const int64_t task_groups = TaskGroups(all_groups, context.pool.active_threads());
  const auto tasks_of = [&](const LinearJob& job, int domain) {
    return CeilDiv(groups_of(job, domain).size(), task_groups);
  };
  const auto count = [&](int domain) {
    int64_t tasks = 0;
    for (const LinearJob& job : jobs) tasks += tasks_of(job, domain);
    return tasks;
  };
  context.pool.RunPerDomain(count, [&](int domain, int64_t task, int) {
    const LinearJob* job = jobs.data();
    for (; task >= tasks_of(*job, domain); ++job) task -= tasks_of(*job, domain);
    const IndexRange rows = TaskRows(job->weights.rows, groups_of(*job, domain), task, task_groups);
    const bool is_coded = job->input.x == coded.x && job->weights.cols == coded_cols;
    MultiplyRows(context.kernels, job->weights, is_coded ? coded : job->input, rows, job->output + rows.begin,
                 job->weights.rows);
  });
}

void ForTaskRows(const EngineContext& context, const PackedMatrix& weights,
                 absl::FunctionRef<void(IndexRange rows)> run) {
  const auto groups = [&](int domain) { return EvenPart(RowGroups(weights), domain, context.pool.domains()); };
  const int64_t task_groups = TaskGroups(RowGroups(weights), context.pool.active_threads());
  const auto count = [&](int domain) { return CeilDiv(groups(domain).size(), task_groups); };
  context.pool.RunPerDomain(
      count, [&](int domain, int64_t task, int) { run(TaskRows(weights.rows, groups(domain), task, task_groups)); });
}

void AddLinear(const EngineContext& context, const PackedMatrix& weights, const LinearInput& input, float* residual,
               uint8_t* room) {
  const LinearInput x = room != nullptr && input.rows >= kManyRows ? CodeInputs(context, weights, input, room) : input;
  ForTaskRows(context, weights, [&](IndexRange rows) {
    MultiplyRows(context.kernels, weights, x, rows, residual + rows.begin, weights.rows, /*add=*/true);
  });
}

}  // namespace moestro::model
