#include "runtime/logits_post_processors.h"

#include <algorithm>

#include "base/error.h"

namespace chorus {
namespace {

using executor::DataType;
using executor::LogitsPostProcessor;
using executor::Tensor;

constexpr const char* kFailed = "Encountered an error in the logits post-processor: ";

// Prepares the arguments of a call: copies the logits row and appends the tokens since the last call.
void show(PostProcessed& request) {
  PostProcessing& own = *request.processing;
  const auto vocab = static_cast<int64_t>(request.logits.size());
  // A new tensor for each call, because the client may have kept the last one.
  own.logits = Tensor::cpu(DataType::kFP32, {1, 1, vocab});
  std::copy(request.logits.begin(), request.logits.end(), static_cast<float*>(own.logits.getData()));
  if (own.tokens.empty()) own.tokens.emplace_back();
  auto& shown = own.tokens.front();
  shown.insert(shown.end(), request.tokens.begin() + static_cast<ptrdiff_t>(shown.size()), request.tokens.end());
}

// Checks the tensor that the function left and makes it the request's logits.
void take(PostProcessed& request) {
  const Tensor& logits = request.processing->logits;
  if (logits.getDataType() != DataType::kFP32 || logits.getSize() != request.logits.size()) {
    request.error =
        fmt::format("{}it left a logits tensor that is not float32 [1, 1, {}]", kFailed, request.logits.size());
    return;
  }
  request.logits = {static_cast<const float*>(logits.getData()), logits.getSize()};
}

template <typename Call>
std::string errorOfCall(const Call& call) {
  try {
    call();
  } catch (const std::exception& error) {
    return std::string(kFailed) + error.what();
  } catch (...) {
    return std::string(kFailed) + "it threw an object that is not a std::exception";
  }
  return "";
}

}  // namespace

LogitsPostProcessors::LogitsPostProcessors(const std::optional<executor::LogitsPostProcessorConfig>& config) {
  if (!config) return;
  for (const auto& [name, function] : config->getProcessorMap().value_or(executor::LogitsPostProcessorMap())) {
    if (function == nullptr)
      fail(ErrorCode::kInvalidArgument, "the logits post-processor '{}' is an empty function", name);
    named_.emplace(name, std::make_shared<const LogitsPostProcessor>(function));
  }
  if (config->getProcessorBatched()) batched_ = *config->getProcessorBatched();
}

void LogitsPostProcessors::check(const executor::Request& request) const {
  const auto& name = request.getLogitsPostProcessorName();
  const auto& function = request.getLogitsPostProcessor();
  if (function && *function == nullptr) fail(ErrorCode::kInvalidArgument, "logitsPostProcessor is an empty function");
  if (!name) return;
  if (function)
    fail(ErrorCode::kInvalidArgument, "a request has a logitsPostProcessor or a logitsPostProcessorName, not both");
  if (*name != executor::Request::kBatchedPostProcessorName && !named_.contains(*name))
    fail(ErrorCode::kInvalidArgument, "LogitsPostProcessor {} not found.", *name);
}

std::optional<Error> LogitsPostProcessors::refusalOf(const executor::Request& request) const {
  if (request.getLogitsPostProcessorName() != executor::Request::kBatchedPostProcessorName || batched_ != nullptr)
    return std::nullopt;
  return Error(ErrorCode::kInvalidArgument,
               "Encountered an error when fetching new request: Batched logits post processor is not defined.");
}

PostProcessing LogitsPostProcessors::of(const executor::Request& request) const {
  PostProcessing processing;
  if (const auto& function = request.getLogitsPostProcessor()) {
    processing.function = std::make_shared<const LogitsPostProcessor>(*function);
  } else if (const auto& name = request.getLogitsPostProcessorName()) {
    processing.batched = *name == executor::Request::kBatchedPostProcessorName;
    if (!processing.batched) processing.function = named_.at(*name);
  }
  return processing;
}

void LogitsPostProcessors::apply(std::span<PostProcessed> requests) const {
  bool batched = false;
  for (PostProcessed& request : requests) {
    PostProcessing& own = *request.processing;
    show(request);
    batched |= own.batched;
    if (own.batched) continue;
    request.error =
        errorOfCall([&] { (*own.function)(request.id, own.logits, own.tokens, nullptr, request.client_id); });
    if (request.error.empty()) take(request);
  }
  if (batched) applyBatched(requests);
}

void LogitsPostProcessors::applyBatched(std::span<PostProcessed> requests) const {
  std::vector<PostProcessed*> of;
  std::vector<executor::IdType> ids;
  std::vector<Tensor> logits;
  std::vector<std::reference_wrapper<const executor::BeamTokens>> tokens;
  std::vector<std::optional<executor::IdType>> client_ids;
  for (PostProcessed& request : requests) {
    if (!request.processing->batched) continue;
    of.push_back(&request);
    ids.push_back(request.id);
    logits.push_back(request.processing->logits);
    tokens.emplace_back(request.processing->tokens);
    client_ids.push_back(request.client_id);
  }
  std::string error = errorOfCall([&] { batched_(ids, logits, tokens, nullptr, client_ids); });
  if (error.empty() && logits.size() != of.size()) {
    error = fmt::format("{}it left {} tensors for {} requests", kFailed, logits.size(), of.size());
  }
  for (size_t i = 0; i < of.size(); ++i) {
    of[i]->error = error;
    if (!error.empty()) continue;
    of[i]->processing->logits = logits[i];
    take(*of[i]);
  }
}

}  // namespace chorus
