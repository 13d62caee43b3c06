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
  // Appends the normalized text to out, which is empty. Work and memory are charged.
  virtual void normalize(Utf8View text, EncodeWork& work, ScratchText& out) const = 0;
  virtual size_t memoryBytes() const { return 64; }
};

class Normalizer {
 public:
  explicit Normalizer(std::vector<std::unique_ptr<const NormalizerStage>> stages) : stages_(std::move(stages)) {}
  // Replaces the content of out, which the stages in turn have made.
  void normalize(Utf8View text, EncodeWork& work, ScratchText& out) const;
  size_t memoryBytes() const;

 private:
  std::vector<std::unique_ptr<const NormalizerStage>> stages_;
};

// json null gives null. Throws Error(kUnsupported) that names source and a component that is not known.
std::unique_ptr<const Normalizer> makeNormalizer(const Json& json, const std::string& source);

}  // namespace chorus
