#include "runtime/engine_adapters.h"

#include <algorithm>
#include <chrono>

#include "base/error.h"
#include "base/file_reader.h"
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

}  // namespace

EngineAdapters::EngineAdapters(const RankGroup& ranks, std::function<PaceClock()> pace)
    : ranks_(ranks),
      pace_(std::move(pace)),
      table_(ranks.engine().architecture().weightTable(ranks.engine().config())) {}

Adapter EngineAdapters::read(const AdapterSource& source) const {
  const Engine& engine = ranks_.engine();
  const AdapterTarget target{engine.config(), table_, engine.buildConfig().max_lora_rank};
  if (source.reloadable()) {
    const PeftFiles files =
        readPeftFiles(source.open, largestPeftWeights(target.config, target.table, target.max_rank));
    return readPeftAdapter(files, source.directory.filename().string(), target, {source.stamps, source.content_hash});
  }
  const auto owner = std::make_shared<std::pair<executor::Tensor, executor::Tensor>>(*source.weights, *source.config);
  return readTensorAdapter(viewOf(owner->first), viewOf(owner->second), owner, "request", target);
}

std::shared_ptr<const AdapterSource> EngineAdapters::peftSource(const std::filesystem::path& directory,
                                                                OnAdapterContent on_content) const {
  // A trailing slash would leave the adapter without a name.
  const auto path = directory.has_filename() ? directory : directory.parent_path();
  return peftSource({path, openerOf(path), std::move(on_content), nullptr});
}

std::shared_ptr<const AdapterSource> EngineAdapters::peftSource(executor::AdapterFiles files_of) const {
  constexpr std::chrono::milliseconds kHeavy{500};
  const auto begin = std::chrono::steady_clock::now();
  Pace pace(pace_());
  const PaceScope scope(pace);
  auto source = std::make_shared<AdapterSource>();
  source->directory = std::move(files_of.path);
  source->open = std::move(files_of.open);
  // Without the plugin every adapter is refused for that reason, whatever else is wrong with it.
  checkServable(Adapter{.name = source->directory.filename().string()}, ranks_.engine().buildConfig());
  source->newest_change_ns = newestPeftChangeNs(source->open);
  const Engine& engine = ranks_.engine();
  const AdapterTarget target{engine.config(), table_, engine.buildConfig().max_lora_rank};
  const PeftFiles files = readPeftFiles(source->open, largestPeftWeights(target.config, target.table, target.max_rank));
  const Adapter adapter = readPeftAdapter(files, source->directory.filename().string(), target);
  source->heavy = std::chrono::steady_clock::now() - begin > kHeavy;
  source->stamps = files.stamps;
  source->content_hash = adapter.content_hash;
  if (files_of.onContent) files_of.onContent(adapter.content_hash);
  source->on_content = std::move(files_of.onContent);
  source->on_gone = std::move(files_of.onGone);
  source->bytes = ranks_.preparedBytes(adapter);
  source->elements = adapterElements(adapter);
  return source;
}

std::shared_ptr<const PreparedAdapter> EngineAdapters::load(const AdapterSource& source) const {
  Pace pace(pace_());
  const PaceScope scope(pace);
  const auto read_settled = [&] {
    if (source.reloadable()) {
      const int64_t newest = newestPeftChangeNs(source.open);
      const auto wait = quietIn(newest);
      if (newest != source.newest_change_ns && wait.count() > 0) throw AdapterUnsettled{wait};
    }
    return read(source);
  };
  const Adapter adapter = [&] {
    try {
      return read_settled();
    } catch (const Error& e) {
      if (e.code() == ErrorCode::kNotFound && source.on_gone) source.on_gone();
      throw;
    }
  }();
  if (source.on_content && adapter.content_hash != source.content_hash) source.on_content(adapter.content_hash);
  return ranks_.prepareAdapter(adapter);
}

}  // namespace chorus
