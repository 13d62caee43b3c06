#include "cli/executor_requests.h"

#include "runtime/lora_files.h"

namespace chorus {

std::vector<executor::LoraConfig> openAdapters(const std::vector<std::string>& dirs, executor::Executor& executor) {
  std::vector<executor::LoraConfig> adapters;
  for (size_t i = 0; i < dirs.size(); ++i) {
    const std::string& dir = dirs[i];
    if (holdsLoraFiles(dir)) {
      const LoraTensors tensors = readLoraFiles(dir);
      adapters.emplace_back(i, tensors.weights, tensors.config);
    } else {
      executor.registerAdapter(i, dir);
      adapters.emplace_back(i);
    }
  }
  return adapters;
}

ErrorCode errorCodeOf(executor::ResponseErrorCode code) {
  using Code = executor::ResponseErrorCode;
  switch (code) {
    case Code::kINVALID_ARGUMENT:
      return ErrorCode::kInvalidArgument;
    case Code::kUNSUPPORTED:
      return ErrorCode::kUnsupported;
    case Code::kNOT_FOUND:
      return ErrorCode::kNotFound;
    case Code::kCORRUPT:
      return ErrorCode::kCorrupt;
    case Code::kEXHAUSTED:
      return ErrorCode::kExhausted;
    case Code::kBUSY:
      return ErrorCode::kBusy;
    case Code::kTOO_LARGE:
      return ErrorCode::kTooLarge;
    case Code::kCONFLICT:
      return ErrorCode::kConflict;
    case Code::kINTERNAL:
      break;
  }
  return ErrorCode::kInternal;
}

}  // namespace chorus
