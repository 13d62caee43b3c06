// The "normalizer" of a tokenizer.json: text to text, before anything is split.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/json.h"
#include "text/tokenizer/encode_work.h"

namespace chorus {

// One step of normalization.
class NormalizerStage {
 public:
  virtual ~NormalizerStage() = default;
  // Appends the normalized text to out, which must be empty. Charges work and memory.
  virtual void normalize(Utf8View text, EncodeWork& work, ScratchText& out) const = 0;
  virtual size_t memoryBytes() const { return 64; }
};

class Normalizer {
 public:
  explicit Normalizer(std::vector<std::unique_ptr<const NormalizerStage>> stages) : stages_(std::move(stages)) {}
  // Replaces the content of out by the text that results from all stages in order.
  void normalize(Utf8View text, EncodeWork& work, ScratchText& out) const;
  size_t memoryBytes() const;

 private:
  std::vector<std::unique_ptr<const NormalizerStage>> stages_;
};

// Returns null for a null json. Throws Error(kUnsupported), naming source and component, for an unknown component.
// meter: charged with the compilation of regular expressions.
std::unique_ptr<const Normalizer> makeNormalizer(const Json& json, const std::string& source, WorkMeter& meter);

}  // namespace chorus
