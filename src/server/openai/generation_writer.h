// Turns a generation's progress into one HTTP answer, whole or as server-sent events. Completions and chat differ in
// the shape of a choice only, which their subclasses give.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "server/http/http.h"
#include "server/openai/generation.h"

namespace chorus::server {

class GenerationWriter : public GenerationListener {
 public:
  struct Setup {
    std::shared_ptr<HttpExchange> exchange;
    std::shared_ptr<const ServedModel> model;
    GenerationOptions options;
    size_t choices;  // that are generated
  };

  // Sends the stream's head. Nothing for a whole answer.
  void begin();

  bool onDelta(GenerationDelta delta) final;
  void onDone(const GenerationUsage& usage) final;
  void onError(const ApiError& error) final;

 protected:
  struct Shape {
    std::string idPrefix;
    std::string wholeObject;
    std::string chunkObject;
  };

  GenerationWriter(Setup setup, const Shape& shape);

  const ServedModel& model() const { return *setup_.model; }
  const GenerationOptions& options() const { return setup_.options; }

  // A choice of a chunk that comes before any token; null for none.
  virtual OrderedJson firstChoice(int32_t index) = 0;
  // The choice of a chunk. Called in order for each index.
  virtual OrderedJson deltaChoice(const GenerationDelta& delta) = 0;
  // The choice of a whole answer; everything holds all of its text and log probabilities.
  virtual OrderedJson wholeChoice(const GenerationDelta& everything) = 0;

 private:
  OrderedJson envelope(const std::string& object) const;
  std::vector<const GenerationDelta*> answered() const;
  bool sendChunk(OrderedJson choices, OrderedJson usage);
  // The events before any token: once the adapter is known that the answer is of.
  void sendFirstChunks();

  Setup setup_;
  Shape shape_;
  std::string id_;
  int64_t created_;
  std::string fingerprint_;
  bool first_sent_ = false;
  std::vector<GenerationDelta> whole_;
};

// Runs the job and answers the exchange through the writer; a client that leaves cancels it. Throws ApiError while
// nothing was sent.
void startGeneration(const ApiContext& context, Generation::Job job, const std::shared_ptr<HttpExchange>& exchange,
                     std::shared_ptr<GenerationWriter> writer);

// Compact, with malformed UTF-8 replaced.
std::string toText(const OrderedJson& json);

}  // namespace chorus::server
