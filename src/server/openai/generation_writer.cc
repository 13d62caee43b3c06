#include "server/openai/generation_writer.h"

#include <algorithm>
#include <ctime>
#include <utility>

#include "base/free_text.h"
#include "base/sha256.h"
#include "server/http/http_wire.h"

namespace chorus::server {
namespace {

OrderedJson usageJson(const GenerationUsage& usage) {
  OrderedJson json = OrderedJson::object();
  json["prompt_tokens"] = usage.prompt_tokens;
  json["total_tokens"] = usage.prompt_tokens + usage.completion_tokens;
  json["completion_tokens"] = usage.completion_tokens;
  json["prompt_tokens_details"] = {{"cached_tokens", usage.cached_tokens}};
  return json;
}

// Returns the fingerprint for content that the executor has reported. For an adapter it is that of the catalog. A
// composition of one adapter with weight 1 has another fingerprint than the adapter alone.
std::string fingerprintOf(const ServedModel& model, const std::string& content_hash) {
  if (model.composition.empty()) return "fp_" + content_hash.substr(0, 12);
  Sha256 hash;
  hash.update("composed " + content_hash);
  return "fp_" + hash.hex().substr(0, 12);
}

// Appends the JSON text of `object` to `out`; append(out) appends the value of `member`.
template <typename Append>
void appendWith(const OrderedJson& object, std::string_view member, std::string& out, Append&& append) {
  char before = '{';
  for (const auto& [name, value] : object.items()) {
    out += before;
    before = ',';
    out += toText(name);
    out += ':';
    if (name == member) {
      append(out);
    } else {
      out += toText(value);
    }
  }
  out += '}';
}

}  // namespace

GenerationWriter::GenerationWriter(AnswerSetup setup, const Shape& shape)
    : AnswerWriter(std::move(setup)),
      shape_(shape),
      id_(randomId(shape.id_prefix)),
      created_(std::time(nullptr)),
      fingerprint_(setup_.model->fingerprint) {
  if (setup_.options.stream) return;
  whole_.resize(setup_.choices);
  for (size_t i = 0; i < whole_.size(); ++i) whole_[i].everything.choice = static_cast<int32_t>(i);
}

OrderedJson GenerationWriter::envelope(const std::string& object) const {
  OrderedJson json = OrderedJson::object();
  json["id"] = id_;
  json["object"] = object;
  json["created"] = created_;
  json["model"] = setup_.model->name;
  json["system_fingerprint"] = fingerprint_;
  return json;
}

bool GenerationWriter::sendChunk(OrderedJson choices, OrderedJson usage) {
  OrderedJson json = envelope(shape_.chunk_object);
  json["choices"] = std::move(choices);
  if (setup_.options.include_usage) json["usage"] = std::move(usage);
  return setup_.exchange->write(sseEvent(toText(json)));
}

OrderedJson GenerationWriter::usageSoFar(const GenerationUsage& usage) const {
  return options().continuous_usage ? usageJson(usage) : OrderedJson();
}

bool GenerationWriter::sendFirstChunks(const GenerationUsage& usage) {
  if (std::exchange(first_sent_, true)) return true;
  for (size_t i = 0; i < setup_.choices; ++i) {
    OrderedJson first = firstChoice(static_cast<int32_t>(i));
    if (first.is_null()) continue;
    if (!sendChunk(OrderedJson::array({std::move(first)}), usageSoFar(usage))) return false;
  }
  return true;
}

bool GenerationWriter::onDelta(GenerationDelta delta) {
  begin();
  if (!delta.adapter_content_hash.empty()) fingerprint_ = fingerprintOf(*setup_.model, delta.adapter_content_hash);
  if (setup_.options.stream) {
    const GenerationUsage of_prompts{.prompt_tokens = delta.usage.prompt_tokens,
                                     .cached_tokens = delta.usage.cached_tokens};
    if (!sendFirstChunks(of_prompts)) return false;
    return sendChunk(OrderedJson::array({deltaChoice(delta)}), usageSoFar(delta.usage));
  }
  return keep(std::move(delta));
}

bool GenerationWriter::keep(GenerationDelta delta) {
  Whole& whole = whole_[static_cast<size_t>(delta.choice)];
  GenerationDelta& everything = whole.everything;
  const size_t held = everything.text.size() + whole.log_probs.bytes();
  everything.text += delta.text;
  whole.log_probs.append(logProbsOf(delta));
  everything.finish_reason = std::move(delta.finish_reason);
  everything.mean_log_prob = delta.mean_log_prob;
  everything.stop_reason = std::move(delta.stop_reason);
  const MemoryAnswer answer = setup_.memory.add(everything.text.size() + whole.log_probs.bytes() - held);
  if (answer == MemoryAnswer::kGranted) return true;
  return fail(ApiError::outOfMemory(answer));
}

// Returns the choices to answer. If more were generated than asked for, these are each prompt's choices of the highest
// mean log probability, in descending order.
std::vector<GenerationWriter::Whole*> GenerationWriter::answered() {
  const auto generated = static_cast<size_t>(options().generated), asked = static_cast<size_t>(options().choices);
  std::vector<Whole*> out;
  for (size_t first = 0; first < whole_.size(); first += generated) {
    const size_t begin = out.size();
    for (size_t i = first; i < first + generated; ++i) out.push_back(&whole_[i]);
    if (generated == asked) continue;
    std::stable_sort(out.begin() + static_cast<ptrdiff_t>(begin), out.end(), [](const auto* a, const auto* b) {
      return a->everything.mean_log_prob > b->everything.mean_log_prob;
    });
    out.resize(begin + asked);
  }
  return out;
}

void GenerationWriter::onDone(const GenerationUsage& usage) {
  begin();
  if (setup_.options.stream) {
    if (setup_.options.include_usage) sendChunk(OrderedJson::array(), usageJson(usage));
    setup_.exchange->write(sseEvent("[DONE]"));
    setup_.exchange->endStream();
    return;
  }
  respondWhole(usage);
}

void GenerationWriter::respondWhole(const GenerationUsage& usage) {
  const std::vector<Whole*> choices = answered();
  size_t texts = 0, log_probs = 0;
  for (const Whole* whole : choices) {
    texts += whole->everything.text.size();
    log_probs += whole->log_probs.bytes();
  }
  // Each choice is freed once it is written. A text is also copied into JSON values and their text.
  const auto copies = chargeCopies(3 * texts + log_probs);
  if (!copies) return;
  OrderedJson json = envelope(shape_.whole_object);
  json["choices"] = nullptr;
  json["usage"] = usageJson(usage);
  HttpResponse response;
  constexpr size_t kFields = 512;  // of a choice, and of the answer
  response.body.reserve(texts + texts / 8 + log_probs + (choices.size() + 1) * kFields);
  MemoryAnswer granted = MemoryAnswer::kGranted;
  appendWith(json, "choices", response.body, [&](std::string& out) {
    out += '[';
    for (size_t i = 0; i < choices.size(); ++i) {
      Whole* whole = choices[i];
      OrderedJson choice = wholeChoice(whole->everything);
      freeText(whole->everything.text);
      choice["index"] = i;
      if (i > 0) out += ',';
      appendWith(choice, "logprobs", out, [&](std::string& text) { whole->log_probs.moveTo(text); });
      // Escapes may make the answer longer than the texts that were charged.
      granted = setup_.memory.resize(std::max(setup_.memory.bytes(), out.size()));
      if (granted != MemoryAnswer::kGranted) return;
    }
    out += ']';
  });
  if (granted != MemoryAnswer::kGranted) {
    fail(ApiError::outOfMemory(granted));
    return;
  }
  response.memory = std::move(setup_.memory);
  setup_.exchange->respond(std::move(response));
}

void GenerationWriter::streamFails(const ApiError& error) {
  setup_.exchange->write(sseEvent(error.body()));
  setup_.exchange->write(sseEvent("[DONE]"));
}

}  // namespace chorus::server
