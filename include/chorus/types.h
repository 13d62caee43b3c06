// Names and enumerations of the Executor API, with the values of TensorRT-LLM's executor.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <iosfwd>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace chorus::runtime {
// A stream of a device that runs beside the host. This build has no such device: the API returns null streams and
// ignores those that it is given.
class CudaStream;
}  // namespace chorus::runtime

namespace chorus::executor {

class Request;
class Tensor;

using TensorPtr = std::shared_ptr<Tensor>;
using SizeType32 = std::int32_t;
using SizeType64 = std::int64_t;
using FloatType = float;
using TokenIdType = std::int32_t;
using VecTokens = std::vector<TokenIdType>;
using BeamTokens = std::vector<VecTokens>;
using IdType = std::uint64_t;
using VecTokenExtraIds = std::vector<IdType>;
using IterationType = std::uint64_t;
using CacheSaltIDType = std::uint64_t;
using RandomSeedType = std::uint64_t;
using VecLogProbs = std::vector<FloatType>;
using StreamPtr = std::shared_ptr<runtime::CudaStream>;
using MillisecondsType = std::chrono::milliseconds;
using MedusaChoices = std::vector<std::vector<SizeType32>>;
using EagleChoices = std::vector<std::vector<SizeType32>>;
using PriorityType = float;
using RetentionPriority = SizeType32;
using BufferView = std::basic_string_view<std::uint8_t>;

// May change a request's logits before its next token is chosen. Arguments: request id; logits [1, 1, vocab] float32 on
// the host; tokens of each beam, from the prompt's first on; a null stream; client id. It runs on the executor's step
// thread, before embeddingBias and everything that SamplingConfig asks for. An exception ends only its own request,
// with an error.
using LogitsPostProcessor =
    std::function<void(IdType, Tensor&, const BeamTokens&, const StreamPtr&, std::optional<IdType>)>;
using LogitsPostProcessorMap = std::unordered_map<std::string, LogitsPostProcessor>;
// Processes the logits of all requests of a step that select this processor in one call. An exception ends all of these
// requests.
using LogitsPostProcessorBatched = std::function<void(const std::vector<IdType>&, std::vector<Tensor>&,
                                                      const std::vector<std::reference_wrapper<const BeamTokens>>&,
                                                      const StreamPtr&, const std::vector<std::optional<IdType>>&)>;

enum class DataType { kBOOL, kUINT8, kINT8, kINT32, kINT64, kBF16, kFP8, kFP16, kFP32, kUNKNOWN };
enum class MemoryType { kCPU, kCPU_PINNED, kCPU_PINNEDPOOL, kGPU, kUVM, kUNKNOWN };
enum class ModelType { kDECODER_ONLY = 0, kENCODER_ONLY = 1, kENCODER_DECODER = 2 };
enum class BatchingType { kSTATIC = 0, kINFLIGHT = 1 };
enum class CapacitySchedulerPolicy { kMAX_UTILIZATION = 0, kGUARANTEED_NO_EVICT = 1, kSTATIC_BATCH = 2 };
enum class ContextChunkingPolicy { kFIRST_COME_FIRST_SERVED = 0, kEQUAL_PROGRESS = 1 };
enum class CommunicationType { kMPI = 0 };
enum class CommunicationMode { kLEADER, kORCHESTRATOR };
enum class RequestType {
  REQUEST_TYPE_CONTEXT_AND_GENERATION = 0,
  REQUEST_TYPE_CONTEXT_ONLY = 1,
  REQUEST_TYPE_GENERATION_ONLY = 2
};
enum class FinishReason {
  kNOT_FINISHED = 0,
  kEND_ID = 1,
  kSTOP_WORDS = 2,
  kLENGTH = 3,
  kTIMED_OUT = 4,
  kCANCELLED = 5
};
// Chorus: why a request failed, for front ends. TensorRT-LLM has only the text.
enum class ResponseErrorCode {
  kINVALID_ARGUMENT,  // the request must change
  kUNSUPPORTED,       // the request needs something that this engine or build does not support
  kNOT_FOUND,         // the request's adapter does not exist
  kCORRUPT,           // the adapter's files or tensors are inconsistent
  kEXHAUSTED,         // memory is full; the same request may succeed later
  kBUSY,              // the adapters of other requests fill the adapter cache (PeftCacheConfig::getRejectWhenFull)
  kTOO_LARGE,         // the request's adapters are larger than the adapter cache
  kCONFLICT,          // the adapter was or is being replaced; the same request may succeed now
  kINTERNAL,          // a fault that the request did not cause
};

std::ostream& operator<<(std::ostream& os, CapacitySchedulerPolicy policy);
std::ostream& operator<<(std::ostream& os, ContextChunkingPolicy policy);

// Chorus: a token and the log of its probability, by softmax of the model's unmodified logits.
struct TokenLogProb {
  TokenIdType token = 0;
  FloatType logProb = 0;
};

// The data type of a C++ type.
template <typename T, bool = false>
struct TypeTraits {};
template <>
struct TypeTraits<float> {
  static constexpr auto value = DataType::kFP32;
};
template <>
struct TypeTraits<std::int8_t> {
  static constexpr auto value = DataType::kINT8;
};
template <>
struct TypeTraits<std::int32_t> {
  static constexpr auto value = DataType::kINT32;
};
template <>
struct TypeTraits<std::int64_t> {
  static constexpr auto value = DataType::kINT64;
};
template <>
struct TypeTraits<bool> {
  static constexpr auto value = DataType::kBOOL;
};
template <>
struct TypeTraits<std::uint8_t> {
  static constexpr auto value = DataType::kUINT8;
};
template <typename T>
struct TypeTraits<T*> {
  static constexpr auto value = DataType::kINT64;
};

}  // namespace chorus::executor
