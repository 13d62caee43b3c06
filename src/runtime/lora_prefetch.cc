#include "runtime/lora_prefetch.h"

#include <charconv>

#include "base/error.h"
#include "base/log.h"
#include "runtime/adapter_cache/tensor_source.h"
#include "runtime/lora_files.h"

namespace chorus {

std::map<uint64_t, std::shared_ptr<const AdapterSource>> prefetchedAdapters(const std::filesystem::path& dir,
                                                                            const PackedRowBytes& row_bytes) {
  std::error_code error;
  const std::filesystem::directory_iterator entries(dir, error);
  if (error) fail(ErrorCode::kNotFound, "loraPrefetchDir {}: {}", dir.string(), error.message());
  std::map<uint64_t, std::shared_ptr<const AdapterSource>> sources;
  for (const auto& entry : entries) {
    const std::string name = entry.path().filename().string();
    uint64_t task_id = 0;
    const auto [end, fault] = std::from_chars(name.data(), name.data() + name.size(), task_id);
    if (fault != std::errc() || end != name.data() + name.size() || !entry.is_directory()) {
      log::warn("loraPrefetchDir {}: {} is not the directory of a task id", dir.string(), name);
      continue;
    }
    const LoraTensors tensors = readLoraFiles(entry.path());
    try {
      sources[task_id] = tensorSource(executor::LoraConfig(task_id, tensors.weights, tensors.config), row_bytes);
    } catch (const std::invalid_argument& refused) {
      fail(ErrorCode::kCorrupt, "{}: {}", entry.path().string(), refused.what());
    }
  }
  return sources;
}

}  // namespace chorus
