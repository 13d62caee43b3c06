#include "chorus/response.h"

#include <cstring>
#include <stdexcept>

namespace chorus::executor {

Tensor SpeculativeDecodingFastLogitsInfo::toTensor() const {
  static_assert(sizeof(*this) == 4 * sizeof(float));
  Tensor tensor = Tensor::cpu(DataType::kFP32, {1, 4});
  std::memcpy(tensor.getData(), this, sizeof(*this));
  return tensor;
}

const std::string& Response::getErrorMsg() const {
  if (!error_) throw std::logic_error("the response holds a result, not an error");
  return *error_;
}

ResponseErrorCode Response::getErrorCode() const {
  if (!error_) throw std::logic_error("the response holds a result, not an error");
  return errorCode_;
}

const Result& Response::getResult() const {
  if (result_ == nullptr) throw std::logic_error("the response holds an error: " + *error_);
  return *result_;
}

}  // namespace chorus::executor
