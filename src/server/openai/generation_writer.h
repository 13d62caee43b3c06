// Turns a generation's progress into one HTTP answer, whole or as server-sent events. Completions and chat differ only
// in the JSON of a choice, which the subclasses write.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/openai/answer_writer.h"
#include "server/openai/log_probs.h"

namespace chorus::server {

class GenerationWriter : public AnswerWriter {
 public:
  // Bytes of echoes that one call writes, approximately. A request may have many choices with an echo of megabytes
  // each. The next writeMore() writes more.
  static constexpr size_t kPieceBytes = size_t{64} << 10;

  Written onDelta(GenerationDelta delta) final;
  Written onDone(const GenerationUsage& usage) final;
  Written writeMore() final;

 protected:
  struct Shape {
    std::string id_prefix;
    std::string whole_object;
    std::string chunk_object;
  };

  GenerationWriter(AnswerSetup setup, const Shape& shape);

  // The text with which the answer of a choice begins, before its tokens. Valid as long as the writer.
  virtual std::string_view echoOf(int32_t) const { return {}; }
  // Whether a stream begins with the echo of each choice, even if that is empty. Otherwise an echo comes with the first
  // log probabilities of its prompt.
  virtual bool hasFirstChunks() const = 0;
  // Each choice below has the member "logprobs" with the value null, after "text" if it has that. This class writes the
  // log probabilities in its place.
  //
  // The choice of a chunk with a piece of the choice's echo.
  virtual OrderedJson echoChoice(int32_t index, std::string_view text) = 0;
  // The choice of a chunk. Called in order for each index of a choice.
  virtual OrderedJson deltaChoice(const GenerationDelta& delta) = 0;
  // Appends the log probabilities of a delta, or nothing if they were not asked for. Called in order for each index of
  // a choice.
  virtual void appendLogProbs(const GenerationDelta& delta, ArraysText& out) = 0;
  // The choice of a whole answer. everything: has the whole text of the choice, except its echo, which this class puts
  // at the beginning of the member "text".
  virtual OrderedJson wholeChoice(const GenerationDelta& everything) = 0;

 private:
  // A choice of an answer that is not streamed.
  struct Whole {
    GenerationDelta everything;  // without log probabilities
    ArraysText log_probs;
  };

  // The JSON text of a choice in three parts, between which its echo and its log probabilities are written.
  struct ChoiceText {
    std::string before_echo, before_log_probs, end;
  };
  // An answer that is not streamed, while it is written.
  struct WholeAnswer {
    std::vector<Whole*> choices;
    ClientCharge copies;
    std::string body;
    std::string end;                   // what follows the choices
    size_t next = 0;                   // the choice that is written
    std::optional<ChoiceText> choice;  // the text of that choice; set while it is written
    size_t echoed = 0;                 // bytes of its echo
  };

  OrderedJson envelope(const std::string& object) const;
  std::vector<Whole*> answered();
  Written keep(GenerationDelta delta);
  Written beginWhole(const GenerationUsage& usage);
  Written writeWhole();
  static ChoiceText textOf(const OrderedJson& choice);
  void writeChoice(size_t piece_end);
  Written writeStream();
  bool sendEcho(int32_t choice, const GenerationUsage& usage);
  bool sendChoice(const OrderedJson& choice, ArraysText log_probs, OrderedJson usage);
  // choices: the text of a JSON array.
  bool sendChunk(std::string_view choices, OrderedJson usage);
  // The value of "usage" in a chunk that is not the last one.
  OrderedJson usageSoFar(const GenerationUsage& usage) const;
  void streamFails(const ApiError& error) final;

  Shape shape_;
  std::string id_;
  int64_t created_;
  std::string fingerprint_;
  std::vector<Whole> whole_;
  std::unique_ptr<WholeAnswer> answer_;

  // The members below are used only if the answer is a stream.
  std::optional<GenerationDelta> unsent_;  // the delta that waits for echoes
  size_t first_chunks_ = 0;                // choices whose first chunks are sent
  size_t echoed_ = 0;                      // bytes that are sent of the next choice's echo
  size_t sent_ = 0;                        // bytes that writeStream() has sent in this call
};

}  // namespace chorus::server
