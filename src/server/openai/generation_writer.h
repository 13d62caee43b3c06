// Turns a generation's progress into one HTTP answer, whole or as server-sent events. Completions and chat differ only
// in the JSON of a choice, which the subclasses write.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "server/openai/answer_writer.h"
#include "server/openai/log_probs.h"

namespace chorus::server {

class GenerationWriter : public AnswerWriter {
 public:
  bool onDelta(GenerationDelta delta) final;
  void onDone(const GenerationUsage& usage) final;

 protected:
  struct Shape {
    std::string id_prefix;
    std::string whole_object;
    std::string chunk_object;
  };

  GenerationWriter(AnswerSetup setup, const Shape& shape);

  // The choice of the chunk that is sent before any token; null if there is no such chunk.
  virtual OrderedJson firstChoice(int32_t index) = 0;
  // The choice of a chunk. Called in order for each index of a choice.
  virtual OrderedJson deltaChoice(const GenerationDelta& delta) = 0;
  // The log probabilities of a delta: an object of arrays, or null if they were not asked for. Called in order for each
  // index of a choice.
  virtual OrderedJson logProbsOf(const GenerationDelta& delta) = 0;
  // The choice of a whole answer, with null as its "logprobs". everything: has the whole text of the choice.
  virtual OrderedJson wholeChoice(const GenerationDelta& everything) = 0;

 private:
  // A choice of an answer that is not streamed.
  struct Whole {
    GenerationDelta everything;  // without log probabilities
    JoinedArrays log_probs;
  };

  OrderedJson envelope(const std::string& object) const;
  std::vector<Whole*> answered();
  bool keep(GenerationDelta delta);
  void respondWhole(const GenerationUsage& usage);
  bool sendChunk(OrderedJson choices, OrderedJson usage);
  // Sends the chunks that come before any token. Called with the first delta, when the fingerprint of the adapter is
  // known. usage: of the prompts.
  // Returns false if the client is gone.
  bool sendFirstChunks(const GenerationUsage& usage);
  // The value of "usage" in a chunk that is not the last one.
  OrderedJson usageSoFar(const GenerationUsage& usage) const;
  void streamFails(const ApiError& error) final;

  Shape shape_;
  std::string id_;
  int64_t created_;
  std::string fingerprint_;
  bool first_sent_ = false;
  std::vector<Whole> whole_;
};

}  // namespace chorus::server
