// The "pre_tokenizer" of a tokenizer.json: splits normalized text into the words that the model encodes.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/function_ref.h"
#include "base/json.h"
#include "text/tokenizer/encode_work.h"

namespace chorus {

struct Piece {
  Utf8View text;          // not empty; valid only during the call
  bool at_start = false;  // true if it begins at the start of the whole input
};
using PieceSink = FunctionRef<void(const Piece&)>;

// One step of splitting.
class PreTokenizerStage {
 public:
  virtual ~PreTokenizerStage() = default;
  // Passes the parts of a piece to sink in order, each as soon as it is known. Charges work and memory.
  virtual void split(const Piece& piece, EncodeWork& work, PieceSink sink) const = 0;
  virtual size_t memoryBytes() const { return 64; }
};

class PreTokenizer {
 public:
  explicit PreTokenizer(std::vector<std::unique_ptr<const PreTokenizerStage>> stages) : stages_(std::move(stages)) {}
  void split(const Piece& piece, EncodeWork& work, PieceSink sink) const { run(0, piece, work, sink); }
  size_t memoryBytes() const;

 private:
  void run(size_t stage, const Piece& piece, EncodeWork& work, PieceSink sink) const;

  std::vector<std::unique_ptr<const PreTokenizerStage>> stages_;
};

// Returns null for a null json. Throws Error(kUnsupported), naming source and component, for an unknown component.
// meter: charged with the compilation of regular expressions.
std::unique_ptr<const PreTokenizer> makePreTokenizer(const Json& json, const std::string& source, WorkMeter& meter);

}  // namespace chorus
