// The "pre_tokenizer" of a tokenizer.json: normalized text to the words that the model sees.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/function_ref.h"
#include "base/json.h"
#include "text/tokenizer/encode_work.h"

namespace chorus {

struct Piece {
  Utf8View text;          // not empty; valid during the call that gives it
  bool at_start = false;  // begins where the whole input begins
};
using PieceSink = FunctionRef<void(const Piece&)>;

// One step of splitting.
class PreTokenizerStage {
 public:
  virtual ~PreTokenizerStage() = default;
  // Gives the parts of a piece in their order, each as soon as it is known. Work and memory are charged.
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

// json null gives null. Throws Error(kUnsupported) that names source and a component that is not known.
std::unique_ptr<const PreTokenizer> makePreTokenizer(const Json& json, const std::string& source);

}  // namespace chorus
