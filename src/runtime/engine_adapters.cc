#include "runtime/engine_adapters.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/error.h"
#include "base/file_reader.h"
#include "base/log.h"
#include "engine/adapter_limits.h"
#include "lora/adapter.h"
#include "lora/adapter_files.h"
#include "lora/peft_files.h"
#include "lora/peft_reader.h"
#include "lora/tensor_adapter.h"

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

// A clock that also reports the work between two looks. on_work: may be null.
ThrottleClock reportingClock(ThrottleClock clock, std::function<void(size_t)> on_work) {
  if (!on_work) return clock;
  clock.now = [now = std::move(clock.now), on_work = std::move(on_work)](size_t bytes) {
    on_work(bytes);
    return now(bytes);
  };
  return clock;
}

// Reports a throttle's waits at its end.
class WaitReport {
 public:
  // on_waited: may be null.
  WaitReport(const BackgroundThrottle& throttle, std::function<void(std::chrono::nanoseconds)> on_waited)
      : throttle_(throttle), on_waited_(std::move(on_waited)) {}
  ~WaitReport() {
    if (on_waited_) on_waited_(throttle_.waited());
  }
  WaitReport(const WaitReport&) = delete;
  WaitReport& operator=(const WaitReport&) = delete;

 private:
  const BackgroundThrottle& throttle_;
  std::function<void(std::chrono::nanoseconds)> on_waited_;
};

// Hash of the content at registration, or at the first load if the registration did not read the values.
std::string knownHash(const AdapterSource& source) {
  return source.learned != nullptr ? source.learned->hash() : source.content_hash;
}

void warnIfWithoutEffect(const Adapter& adapter) {
  if (adapter.without_effect.empty()) return;
  log::warn("adapter '{}' changes nothing: {}", adapter.name, adapter.without_effect);
}

// True for errors in the files, false for errors caused by the state of this process.
bool refusesFiles(ErrorCode code) {
  return code == ErrorCode::kCorrupt || code == ErrorCode::kInvalidArgument || code == ErrorCode::kUnsupported;
}

// The verdict on each tensor.
std::vector<executor::AdapterTensorReport> tensorReports(const PeftFiles& files, const AdapterTarget& target) {
  using From = PeftInspection::Tensor::Verdict;
  using To = executor::AdapterTensorReport::Verdict;
  std::vector<executor::AdapterTensorReport> reports;
  for (PeftInspection::Tensor& tensor : inspectPeftAdapter(files, target).tensors) {
    const TensorView& view = *files.weights.find(tensor.name);
    reports.push_back({.name = std::move(tensor.name),
                       .dataType = std::string(dtypeName(view.dtype)),
                       .shape = view.shape,
                       .verdict = tensor.verdict == From::kUsed      ? To::kUSED
                                  : tensor.verdict == From::kLeftOut ? To::kLEFT_OUT
                                                                     : To::kREFUSED,
                       .target = std::move(tensor.target),
                       .reason = std::move(tensor.reason)});
  }
  return reports;
}

// Multiplications for the norms of W + scale B A, which a load of a DoRA adapter computes.
double normProducts(const Adapter& adapter) {
  if (!adapter.uses_dora) return 0;
  double products = 0;
  for (const AdapterModule& module : adapter.modules) {
    products += static_cast<double>(module.in) * static_cast<double>(module.out) * static_cast<double>(module.rank);
  }
  return products;
}

std::string nameOf(const executor::AdapterFiles& files) {
  return files.name.empty() ? files.path.filename().string() : files.name;
}

void logLeftOut(const Adapter& adapter) {
  if (adapter.num_of_other_parts == 0) return;
  log::warn("adapter {}: {} tensors of parts of the model that are not served are left out, such as '{}'", adapter.name,
            adapter.num_of_other_parts, adapter.left_out.back());
}

}  // namespace

EngineAdapters::EngineAdapters(const RankGroup& ranks, std::function<ThrottleClock()> throttle, size_t load_bytes)
    : ranks_(ranks),
      throttle_(std::move(throttle)),
      table_(ranks.engine().architecture().weightTable(ranks.engine().config())),
      file_memory_(std::make_shared<FileMemory>(load_bytes, "the memory for loads (serve: --lora_load_memory)")) {}

AdapterTarget EngineAdapters::targetOf(const Engine& engine, BackgroundThrottle& throttle) const {
  return {engine.config(), table_, engine.buildConfig().max_lora_rank, engine.architecture().left_out, &throttle};
}

Adapter EngineAdapters::read(const AdapterSource& source, BackgroundThrottle& throttle) const {
  const Engine& engine = ranks_.engine();
  const AdapterTarget target = targetOf(engine, throttle);
  if (source.reloadable()) {
    const AdapterContents files =
        readAdapterFiles(source.location, AdapterFileLimits::of(target), file_memory_, &throttle);
    return readAdapter(files, source.name, target);
  }
  const auto owner = std::make_shared<std::pair<executor::Tensor, executor::Tensor>>(*source.weights, *source.config);
  return readTensorAdapter(viewOf(owner->first), viewOf(owner->second), owner, "request", target);
}

std::shared_ptr<const AdapterSource> EngineAdapters::fileSource(const std::filesystem::path& directory,
                                                                OnAdapterContent on_content) const {
  // A trailing slash would leave the adapter without a name.
  const auto path = directory.has_filename() ? directory : directory.parent_path();
  AdapterLocation location = AdapterLocation::of(path);
  return fileSource(
      {path, std::move(location.open), std::move(on_content), nullptr, false, nullptr, std::move(location.archive)});
}

std::shared_ptr<const AdapterSource> EngineAdapters::fileSource(executor::AdapterFiles files_of) const {
  constexpr std::chrono::milliseconds kHeavy{500};
  // Work of about kHeavy: reading and checking bytes, and the products of DoRA's norms.
  constexpr uint64_t kHeavyBytes = uint64_t{256} << 20;
  constexpr double kHeavyProducts = 5e8;
  const auto begin = std::chrono::steady_clock::now();
  BackgroundThrottle throttle(reportingClock(throttle_(), std::move(files_of.onWork)));
  const WaitReport report(throttle, std::move(files_of.onWaited));
  auto source = std::make_shared<AdapterSource>();
  source->name = nameOf(files_of);
  source->directory = std::move(files_of.path);
  source->location = {std::move(files_of.open), std::move(files_of.archive)};
  // Runs first, so that without the LoRA plugin every adapter is refused for that reason.
  checkServable(Adapter{.name = source->name}, ranks_.engine().buildConfig());
  source->newest_change_ns = newestAdapterChangeNs(source->location);
  const Engine& engine = ranks_.engine();
  const AdapterTarget target = targetOf(engine, throttle);
  const AdapterFileLimits limits = AdapterFileLimits::of(target);
  const std::string& name = source->name;
  Shapes shapes;
  {
    const AdapterHeaders headers = readAdapterHeaders(source->location, limits, file_memory_, &throttle);
    shapes = shapesOf(headers, name, target);
  }
  // A load that waits for much memory must not hold up those that need little.
  const bool large = shapes.load_bytes > kHeavyBytes || !file_memory_->isSmall(shapes.load_bytes) ||
                     shapes.norm_products > kHeavyProducts;
  if (files_of.deferContent) {
    source->bytes = shapes.bytes;
    source->elements = shapes.elements;
    source->droppable_bytes = shapes.droppable_bytes;
    source->learned = std::make_shared<LearnedContent>();
    source->on_refused = std::move(files_of.onRefused);
  } else {
    {
      const Adapter adapter =
          readAdapter(readAdapterFiles(source->location, limits, file_memory_, &throttle), name, target);
      source->content_hash = adapter.content_hash;
      warnIfWithoutEffect(adapter);
      source->bytes = ranks_.preparedBytes(adapter, &throttle, throttle_);
      source->elements = adapterElements(adapter);
    }
    // After the adapter's file memory is free again, because the callback may read files.
    if (files_of.onContent) files_of.onContent(source->content_hash);
  }
  source->heavy = large || std::chrono::steady_clock::now() - begin - throttle.waited() > kHeavy;
  source->on_content = std::move(files_of.onContent);
  source->on_gone = std::move(files_of.onGone);
  return source;
}

EngineAdapters::Shapes EngineAdapters::shapesOf(const AdapterHeaders& headers, const std::string& name,
                                                const AdapterTarget& target) const {
  constexpr size_t kMostKnown = 256;
  const auto read = [&] {
    Adapter adapter = readAdapter(headers.parse(), name, target);
    logLeftOut(adapter);
    const auto bytesOf = [&] { return ranks_.preparedBytes(adapter, target.throttle, throttle_); };
    Shapes shapes{.bytes = bytesOf(),
                  .elements = adapterElements(adapter),
                  .norm_products = normProducts(adapter),
                  .load_bytes = headers.loadBytes()};
    const auto may_be_copy = [&](const AdapterWeight& weight) { return mayBeCopyOfBase(adapter, weight); };
    if (std::erase_if(adapter.weights, may_be_copy) > 0) shapes.droppable_bytes = shapes.bytes - bytesOf();
    return shapes;
  };
  const std::string digest = headers.digest(target.throttle);
  if (digest.empty()) return read();
  {
    const std::lock_guard lock(shapes_mutex_);
    if (const auto known = shapes_.find(digest); known != shapes_.end()) return known->second;
  }
  const Shapes shapes = read();
  const std::lock_guard lock(shapes_mutex_);
  if (shapes_.size() == kMostKnown) shapes_.clear();
  shapes_[digest] = shapes;
  return shapes;
}

executor::AdapterReport EngineAdapters::inspect(const executor::AdapterFiles& files_of) const {
  BackgroundThrottle throttle(reportingClock(throttle_(), files_of.onWork));
  const Engine& engine = ranks_.engine();
  const AdapterLocation location = {files_of.open, files_of.archive};
  const AdapterTarget target = targetOf(engine, throttle);
  const std::string name = nameOf(files_of);
  checkServable(Adapter{.name = name}, engine.buildConfig());
  files_of.open();
  executor::AdapterReport report;
  try {
    const AdapterContents files = readAdapterFiles(location, AdapterFileLimits::of(target), file_memory_, &throttle);
    if (const auto* const peft = std::get_if<PeftFiles>(&files.files)) report.tensors = tensorReports(*peft, target);
    const Adapter adapter = readAdapter(files, name, target);
    checkServable(adapter, engine.buildConfig());
    report.hostBytes = ranks_.preparedBytes(adapter, &throttle, throttle_);
    report.kind = adapter.uses_dora ? "dora" : adapter.modules.empty() ? "weights" : "lora";
    report.maxRank = adapter.max_rank;
    report.contentHash = adapter.content_hash;
    report.accepted = true;
  } catch (const Error& e) {
    if (!refusesFiles(e.code()) && e.code() != ErrorCode::kNotFound && e.code() != ErrorCode::kTooLarge) throw;
    report.error = e.what();
  }
  return report;
}

std::shared_ptr<const PreparedAdapter> EngineAdapters::load(const AdapterSource& source) const {
  try {
    return prepare(source);
  } catch (const Error& e) {
    if (e.code() == ErrorCode::kNotFound && source.on_gone) source.on_gone();
    const bool first = source.learned != nullptr && source.learned->hash().empty();
    const bool never_fits = e.code() == ErrorCode::kTooLarge;
    if (!first || !(refusesFiles(e.code()) || never_fits) || !source.on_refused) throw;
    source.on_refused(e.what());
    throw AdapterRefused(e);
  }
}

std::shared_ptr<const PreparedAdapter> EngineAdapters::prepare(const AdapterSource& source) const {
  BackgroundThrottle throttle(throttle_());
  if (source.reloadable()) {
    const int64_t newest = newestAdapterChangeNs(source.location);
    const auto wait = quietIn(newest);
    if (newest != source.newest_change_ns && wait.count() > 0) throw AdapterUnsettled{wait};
  }
  const std::string known = knownHash(source);
  std::string found;
  std::shared_ptr<const PreparedAdapter> prepared;
  {
    const Adapter adapter = read(source, throttle);
    found = adapter.content_hash;
    if (source.reloadable() && found != known) warnIfWithoutEffect(adapter);
    prepared = ranks_.prepareAdapter(adapter, &throttle, throttle_);
  }
  // After the adapter's file memory is free again: on_content may register the files anew, which takes such memory.
  if (source.on_content && found != known) source.on_content(found);
  if (source.learned != nullptr && known.empty()) source.learned->set(found);
  return prepared;
}

}  // namespace chorus
