#include "runtime/engine_adapters.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "base/error.h"
#include "base/file.h"
#include "base/pace.h"
#include "engine/adapter_limits.h"
#include "lora/adapter.h"
#include "lora/peft_files.h"
#include "lora/source_peft.h"
#include "lora/source_tensors.h"

namespace chorus {
namespace {

DType dtypeOf(const executor::Tensor& tensor) {
  switch (tensor.getDataType()) {
    case executor::DataType::kFP32:
      return DType::kFloat32;
    case executor::DataType::kFP16:
      return DType::kFloat16;
    case executor::DataType::kBF16:
      return DType::kBFloat16;
    case executor::DataType::kINT32:
      return DType::kInt32;
    default:
      fail(ErrorCode::kInvalidArgument, "Expected lora weights to be the same data type as base model");
  }
}

TensorView viewOf(const executor::Tensor& tensor) {
  const executor::Shape shape = tensor.getShape();
  return {dtypeOf(tensor),
          {shape.begin(), shape.end()},
          std::span(static_cast<const std::byte*>(tensor.getData()), tensor.getSizeInBytes())};
}

// Programs write an adapter's files one after another. Those of a directory that was rewritten since it was registered
// are of one writing when none of them changed for a while.
void waitUntilQuiet(const AdapterSource& source) {
  constexpr std::chrono::nanoseconds kQuiet = std::chrono::seconds(1);
  constexpr int kTries = 2;  // other adapters wait meanwhile
  for (int i = 0; i < kTries; ++i) {
    FileStamp newest;
    newest.changed_ns = newestPeftChangeNs(source.directory);
    if (newest.changed_ns == source.newest_change_ns) return;
    const auto age = std::chrono::nanoseconds(std::max<int64_t>(0, ageNs(newest)));
    if (age >= kQuiet) return;
    std::this_thread::sleep_for(kQuiet - age);
  }
}

}  // namespace

EngineAdapters::EngineAdapters(const RankGroup& ranks, std::function<bool()> steps_run)
    : ranks_(ranks),
      steps_run_(std::move(steps_run)),
      table_(ranks.engine().architecture().weightTable(ranks.engine().config())) {}

Adapter EngineAdapters::read(const AdapterSource& source) const {
  const Engine& engine = ranks_.engine();
  const AdapterTarget target{engine.config(), table_, engine.buildConfig().max_lora_rank};
  if (source.reloadable()) return readPeftAdapter(source.directory, source.directory.filename().string(), target);
  const auto owner = std::make_shared<std::pair<executor::Tensor, executor::Tensor>>(*source.weights, *source.config);
  return readTensorAdapter(viewOf(owner->first), viewOf(owner->second), owner, "request", target);
}

std::shared_ptr<AdapterSource> EngineAdapters::peftSource(const std::filesystem::path& directory) const {
  Pace pace(PaceClock::ofThisThread(steps_run_));
  const PaceScope scope(pace);
  auto source = std::make_shared<AdapterSource>();
  // A trailing slash would leave the adapter without a name.
  source->directory = directory.has_filename() ? directory : directory.parent_path();
  // Without the plugin every adapter is refused for that reason, whatever else is wrong with it.
  checkServable(Adapter{.name = source->directory.filename().string()}, ranks_.engine().buildConfig());
  source->newest_change_ns = newestPeftChangeNs(source->directory);
  const Adapter adapter = read(*source);
  source->content_hash = adapter.content_hash;
  source->bytes = ranks_.preparedBytes(adapter);
  return source;
}

std::shared_ptr<const PreparedAdapter> EngineAdapters::load(const AdapterSource& source) const {
  Pace pace(PaceClock::ofThisThread(steps_run_));
  const PaceScope scope(pace);
  if (source.reloadable()) waitUntilQuiet(source);
  const Adapter adapter = read(source);
  if (source.reloadable() && adapter.content_hash != source.content_hash && source.on_changed) {
    source.on_changed(adapter.content_hash);
  }
  return ranks_.prepareAdapter(adapter);
}

int64_t widestModuleLayerBytes(const Engine& engine) {
  int64_t widest = 0;
  for (const WeightRow& row : engine.architecture().weightTable(engine.config())) {
    for (const LoraTarget& target : row.lora_targets) widest = std::max(widest, target.rows + row.shape.back());
  }
  return widest * static_cast<int64_t>(dtypeSize(engine.config().dtype));
}

}  // namespace chorus
