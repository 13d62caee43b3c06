#include "convert/convert_model.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "base/progress.h"
#include "base/thread_pool.h"
#include "checkpoint/writer.h"
#include "convert/quantise.h"
#include "convert/sources/sources.h"
#include "convert/tensor_copy.h"

namespace chorus {
namespace {

// The conversion of one tensor of one rank. A single job makes both the integers and the scales of a quantised tensor.
struct Job {
  int32_t rank;
  const RankTensor* tensor;
  const RankTensor* scales;  // scales of `tensor` if it holds integers, otherwise null
  uint64_t bytes;
};

uint64_t fileBytes(const RankTensor& tensor) {
  uint64_t bytes = dtypeSize(tensor.dtype);
  for (const int64_t extent : tensor.shape) bytes *= static_cast<uint64_t>(extent);
  return bytes;
}

// Sorts the jobs from largest to smallest, so that at the end no worker is still busy with an embedding table while the
// others are idle.
std::vector<Job> planJobs(const CheckpointWriter& writer, int32_t ranks) {
  std::vector<Job> jobs;
  for (int32_t rank = 0; rank < ranks; ++rank) {
    for (const RankTensor& tensor : writer.tensors(rank)) {
      if (tensor.role == TensorRole::kScales) {
        jobs.back().scales = &tensor;
        jobs.back().bytes += fileBytes(tensor);
      } else {
        jobs.push_back({rank, &tensor, nullptr, fileBytes(tensor)});
      }
    }
  }
  std::stable_sort(jobs.begin(), jobs.end(), [](const Job& a, const Job& b) { return a.bytes > b.bytes; });
  return jobs;
}

void copyAll(const std::vector<Job>& jobs, const SourceModel& model, CheckpointWriter& writer, int32_t workers) {
  const Mapping& mapping = model.config.mapping;
  uint64_t total = 0;
  for (const Job& job : jobs) total += job.bytes;
  Progress progress("converting", total);
  std::atomic<bool> failed{false};
  std::exception_ptr first_failure;
  std::mutex mutex;
  ThreadPool pool(workers, 0);
  pool.run(static_cast<int64_t>(jobs.size()), [&](int64_t index, int /*thread*/) {
    if (failed.load()) return;
    const Job& job = jobs[static_cast<size_t>(index)];
    try {
      const auto into = [&](const RankTensor* tensor) {
        return [&, tensor](uint64_t offset, std::span<const std::byte> bytes) {
          writer.write(job.rank, tensor->name, offset, bytes);
          progress.add(bytes.size());
        };
      };
      if (job.scales != nullptr && model.quantised) {
        for (const RankTensor* part : {job.tensor, job.scales}) {
          copyRankTensor(*part, mapping, job.rank, model.tensors, model.format, into(part));
        }
      } else if (job.scales != nullptr) {
        quantiseRankTensor(*job.tensor, mapping, job.rank, model.tensors, model.format, into(job.tensor),
                           into(job.scales));
      } else {
        copyRankTensor(*job.tensor, mapping, job.rank, model.tensors, model.format, into(job.tensor));
      }
    } catch (...) {
      const std::lock_guard lock(mutex);
      if (!failed.exchange(true)) first_failure = std::current_exception();
    }
  });
  if (first_failure) std::rethrow_exception(first_failure);
}
}  // namespace

void convertModel(const std::filesystem::path& source_path, const std::filesystem::path& output_dir,
                  const ConvertOptions& options) {
  std::error_code ignored;
  if (std::filesystem::equivalent(source_path, output_dir, ignored)) {
    fail(ErrorCode::kInvalidArgument, "{}: is the model itself; write the checkpoint to another directory",
         output_dir.string());
  }
  const SourceModel model = openSource(source_path, options);
  const ModelConfig& config = model.config;
  if (model.left_out.count > 0) {
    log::info("{}: only the text model is served; {} tensors of other parts, {:.1f} MB, are left out",
              source_path.string(), model.left_out.count, static_cast<double>(model.left_out.bytes) / 1e6);
  }
  CheckpointWriter writer(output_dir, config, model.table);
  const std::vector<Job> jobs = planJobs(writer, config.mapping.worldSize());
  const auto cores = static_cast<int32_t>(std::max(1u, std::thread::hardware_concurrency()));
  copyAll(jobs, model, writer, options.workers > 0 ? options.workers : cores);
  writer.publish();

  uint64_t bytes = 0;
  for (const Job& job : jobs) bytes += job.bytes;
  const auto& algo = config.quantization.quant_algo;
  log::info("{}: {} in {}{}, {} rank(s), {:.1f} MB", output_dir.string(), config.architecture, dtypeName(config.dtype),
            algo ? " and " + *algo : "", config.mapping.worldSize(), static_cast<double>(bytes) / 1e6);
}

}  // namespace chorus
