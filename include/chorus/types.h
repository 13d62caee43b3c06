// Plain types of the Executor API, with the names, values and defaults of TensorRT-LLM's executor.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace chorus::executor {

using TokenIdType = std::int32_t;
using VecTokens = std::vector<TokenIdType>;
using BeamTokens = std::vector<VecTokens>;
using IdType = std::uint64_t;
using RandomSeedType = std::uint64_t;
using SizeType32 = std::int32_t;
using FloatType = float;
using VecLogProbs = std::vector<FloatType>;
using PriorityType = float;

enum class DataType { kBOOL, kUINT8, kINT8, kINT32, kINT64, kBF16, kFP8, kFP16, kFP32, kUNKNOWN };
enum class ModelType { kDECODER_ONLY = 0, kENCODER_ONLY = 1, kENCODER_DECODER = 2 };
enum class BatchingType { kSTATIC = 0, kINFLIGHT = 1 };
enum class CapacitySchedulerPolicy { kMAX_UTILIZATION = 0, kGUARANTEED_NO_EVICT = 1, kSTATIC_BATCH = 2 };
enum class ContextChunkingPolicy { kFIRST_COME_FIRST_SERVED = 0, kEQUAL_PROGRESS = 1 };
enum class FinishReason {
  kNOT_FINISHED = 0,
  kEND_ID = 1,
  kSTOP_WORDS = 2,
  kLENGTH = 3,
  kTIMED_OUT = 4,
  kCANCELLED = 5
};
// Chorus: why a request failed, for those who answer on behalf of others. TensorRT-LLM has the text alone.
enum class ResponseErrorCode {
  kINVALID_ARGUMENT,  // the request must change
  kUNSUPPORTED,       // it asks for what this engine or build does not do
  kNOT_FOUND,         // its adapter is not there
  kCORRUPT,           // its adapter's files or tensors contradict themselves
  kEXHAUSTED,         // memory or the adapter cache is full; the same request may succeed later
  kINTERNAL,          // a fault that is not the request's
};

// Chorus: a token and the logarithm of its probability, by the softmax of the logits as the model gave them.
struct TokenLogProb {
  TokenIdType token = 0;
  FloatType logProb = 0;
};

// An owning host tensor, row-major. Copies share the bytes.
class Tensor {
 public:
  Tensor() = default;
  // Zeroed. Throws std::bad_alloc; extents must be non-negative.
  static Tensor cpu(DataType type, std::vector<std::int64_t> shape);
  // Copies bytes from data, which holds the whole tensor.
  static Tensor of(DataType type, const void* data, std::vector<std::int64_t> shape);

  DataType getDataType() const { return type_; }
  const std::vector<std::int64_t>& getShape() const { return shape_; }
  std::size_t getSize() const { return elements_; }
  std::size_t getSizeInBytes() const { return bytes_; }
  void* getData() { return data_.get(); }
  const void* getData() const { return data_.get(); }
  explicit operator bool() const { return data_ != nullptr; }

 private:
  DataType type_ = DataType::kUNKNOWN;
  std::vector<std::int64_t> shape_;
  std::size_t elements_ = 0;
  std::size_t bytes_ = 0;
  std::shared_ptr<std::byte[]> data_;
};

}  // namespace chorus::executor
