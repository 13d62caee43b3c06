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

// Returns the part of `text` from `begin` on that is written at once. It does not end within a character.
std::string_view pieceOf(std::string_view text, size_t begin) {
  std::string_view piece = text.substr(begin, GenerationWriter::kPieceBytes);
  if (begin + piece.size() == text.size()) return piece;
  constexpr int kLongest = 4;  // bytes of a character
  for (int i = 1; i < kLongest; ++i) {
    const auto next = static_cast<unsigned char>(text[begin + piece.size()]);
    if ((next & 0xC0) != 0x80) break;
    piece.remove_suffix(1);
  }
  return piece;
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

bool GenerationWriter::sendChunk(std::string_view choices, OrderedJson usage) {
  std::string json = toText(envelope(shape_.chunk_object));
  json.pop_back();
  json.append(R"(,"choices":)").append(choices);
  if (setup_.options.include_usage) json.append(R"(,"usage":)").append(toText(usage));
  json += '}';
  const std::string event = sseEvent(json);
  sent_ += event.size();
  return setup_.exchange->write(event);
}

bool GenerationWriter::sendChoice(const OrderedJson& choice, ArraysText log_probs, OrderedJson usage) {
  if (!options().log_probs) return sendChunk('[' + toText(choice) + ']', std::move(usage));
  const ChoiceText text = textOf(choice);
  std::string choices = '[' + text.before_echo + text.before_log_probs;
  log_probs.moveTo(choices);
  choices.append(text.end) += ']';
  return sendChunk(choices, std::move(usage));
}

OrderedJson GenerationWriter::usageSoFar(const GenerationUsage& usage) const {
  return options().continuous_usage ? usageJson(usage) : OrderedJson();
}

Written GenerationWriter::onDelta(GenerationDelta delta) {
  begin();
  if (!delta.adapter_content_hash.empty()) fingerprint_ = fingerprintOf(*setup_.model, delta.adapter_content_hash);
  if (!setup_.options.stream) return keep(std::move(delta));
  unsent_ = std::move(delta);
  return writeStream();
}

Written GenerationWriter::writeMore() { return setup_.options.stream ? writeStream() : writeWhole(); }

// Sends a piece of the echo. Returns false if the client is gone.
bool GenerationWriter::sendEcho(int32_t choice, const GenerationUsage& usage) {
  const std::string_view piece = pieceOf(echoOf(choice), echoed_);
  echoed_ += piece.size();
  return sendChoice(echoChoice(choice, piece), {}, usageSoFar(usage));
}

// Sends the delta, and before it the chunks that come before any token. They are not sent earlier, because only the
// first delta has the fingerprint of the adapter.
Written GenerationWriter::writeStream() {
  sent_ = 0;
  const GenerationUsage& usage = unsent_->usage;
  const GenerationUsage of_prompts{.prompt_tokens = usage.prompt_tokens, .cached_tokens = usage.cached_tokens};
  if (!hasFirstChunks()) first_chunks_ = setup_.choices;
  while (first_chunks_ < setup_.choices) {
    if (sent_ >= kPieceBytes) return Written::kPart;
    const auto choice = static_cast<int32_t>(first_chunks_);
    if (!sendEcho(choice, of_prompts)) return Written::kCancelled;
    if (echoed_ < echoOf(choice).size()) continue;
    ++first_chunks_;
    echoed_ = 0;
  }
  // The prompt's first token alone has no log probability.
  const bool begins_prompt = !unsent_->prompt_log_probs.empty() && !unsent_->prompt_log_probs.front().log_prob;
  const std::string_view echo = begins_prompt ? echoOf(unsent_->choice) : std::string_view();
  while (echo.size() - echoed_ > kPieceBytes) {
    if (sent_ >= kPieceBytes) return Written::kPart;
    if (!sendEcho(unsent_->choice, usage)) return Written::kCancelled;
  }
  if (sent_ >= kPieceBytes) return Written::kPart;
  unsent_->text.insert(0, echo.substr(echoed_));
  echoed_ = 0;
  ArraysText log_probs;
  appendLogProbs(*unsent_, log_probs);
  const bool sent = sendChoice(deltaChoice(*unsent_), std::move(log_probs), usageSoFar(usage));
  unsent_.reset();
  return sent ? Written::kAll : Written::kCancelled;
}

Written GenerationWriter::keep(GenerationDelta delta) {
  Whole& whole = whole_[static_cast<size_t>(delta.choice)];
  GenerationDelta& everything = whole.everything;
  const size_t held = everything.text.size() + whole.log_probs.bytes();
  everything.text += delta.text;
  appendLogProbs(delta, whole.log_probs);
  everything.finish_reason = std::move(delta.finish_reason);
  everything.mean_log_prob = delta.mean_log_prob;
  everything.stop_reason = std::move(delta.stop_reason);
  const MemoryAnswer answer = setup_.memory.add(everything.text.size() + whole.log_probs.bytes() - held);
  if (answer == MemoryAnswer::kGranted) return Written::kAll;
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

Written GenerationWriter::onDone(const GenerationUsage& usage) {
  begin();
  if (!setup_.options.stream) return beginWhole(usage);
  if (setup_.options.include_usage) sendChunk("[]", usageJson(usage));
  setup_.exchange->write(sseEvent("[DONE]"));
  setup_.exchange->endStream();
  return Written::kAll;
}

Written GenerationWriter::beginWhole(const GenerationUsage& usage) {
  answer_ = std::make_unique<WholeAnswer>();
  WholeAnswer& answer = *answer_;
  answer.choices = answered();
  size_t texts = 0, echoes = 0, log_probs = 0;
  for (const Whole* whole : answer.choices) {
    texts += whole->everything.text.size();
    echoes += echoOf(whole->everything.choice).size();
    log_probs += whole->log_probs.bytes();
  }
  // Each choice is freed once it is written. A text is also copied into JSON values and their text.
  auto copies = chargeCopies(3 * texts + log_probs);
  if (!copies) return Written::kCancelled;
  answer.copies = std::move(*copies);
  const MemoryAnswer granted = setup_.memory.resize(std::max(setup_.memory.bytes(), texts + echoes + log_probs));
  if (granted != MemoryAnswer::kGranted) return fail(ApiError::outOfMemory(granted));
  constexpr size_t kFields = 512;  // of a choice, and of the answer
  answer.body.reserve(texts + texts / 8 + echoes + log_probs + (answer.choices.size() + 1) * kFields);
  answer.body += toText(envelope(shape_.whole_object));
  answer.body.pop_back();
  answer.body += R"(,"choices":[)";
  answer.end = R"(],"usage":)" + toText(usageJson(usage)) + '}';
  return writeWhole();
}

GenerationWriter::ChoiceText GenerationWriter::textOf(const OrderedJson& choice) {
  ChoiceText text;
  std::string* out = &text.before_echo;
  char before = '{';
  for (const auto& [name, value] : choice.items()) {
    *out += before;
    before = ',';
    *out += toText(name);
    *out += ':';
    if (name == "text") {
      *out += '"';
      out = &text.before_log_probs;
      *out += toText(value).substr(1);
    } else if (name == "logprobs") {
      out = &text.end;
    } else {
      *out += toText(value);
    }
  }
  *out += '}';
  return text;
}

// Writes the next choice, or a part of its echo when the body reaches that size.
void GenerationWriter::writeChoice(size_t piece_end) {
  WholeAnswer& answer = *answer_;
  Whole& whole = *answer.choices[answer.next];
  if (!answer.choice) {
    OrderedJson choice = wholeChoice(whole.everything);
    freeText(whole.everything.text);
    choice["index"] = answer.next;
    answer.choice = textOf(choice);
    answer.echoed = 0;
    if (answer.next > 0) answer.body += ',';
    answer.body += answer.choice->before_echo;
  }
  const std::string_view echo = echoOf(whole.everything.choice);
  while (answer.echoed < echo.size()) {
    if (answer.body.size() >= piece_end) return;
    const std::string_view piece = pieceOf(echo, answer.echoed);
    answer.echoed += piece.size();
    const std::string text = toText(piece);
    answer.body.append(text, 1, text.size() - 2);  // without the quotes
  }
  answer.body += answer.choice->before_log_probs;
  whole.log_probs.moveTo(answer.body);
  answer.body += answer.choice->end;
  answer.choice.reset();
  ++answer.next;
}

Written GenerationWriter::writeWhole() {
  WholeAnswer& answer = *answer_;
  const size_t piece_end = answer.body.size() + kPieceBytes;
  while (answer.next < answer.choices.size()) {
    if (answer.body.size() >= piece_end) return Written::kPart;
    writeChoice(piece_end);
    // Escapes may make the answer longer than the texts that were charged.
    const MemoryAnswer granted = setup_.memory.resize(std::max(setup_.memory.bytes(), answer.body.size()));
    if (granted != MemoryAnswer::kGranted) return fail(ApiError::outOfMemory(granted));
  }
  answer.body += answer.end;
  HttpResponse response{.body = std::move(answer.body)};
  response.memory = std::move(setup_.memory);
  answer_.reset();
  setup_.exchange->respond(std::move(response));
  return Written::kAll;
}

void GenerationWriter::streamFails(const ApiError& error) {
  setup_.exchange->write(sseEvent(error.body()));
  setup_.exchange->write(sseEvent("[DONE]"));
}

}  // namespace chorus::server
