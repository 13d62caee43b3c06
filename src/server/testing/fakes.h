// Stand-ins for tests: a byte-level codec, an engine that repeats its prompt, an exchange that records.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <limits>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/testing/eventually.h"
#include "server/http/http.h"
#include "server/model/engine_client.h"
#include "text/text_codec.h"

namespace chorus::server {

// Token ids are bytes; 256 begins a text, 257 ends one.
class FakeCodec : public TextCodec {
 public:
  static constexpr int32_t kBegin = 256;
  static constexpr int32_t kEnd = 257;

  std::vector<int32_t> encode(std::string_view text, bool add_special_tokens, WorkMeter& meter,
                              const EncodeLimits& limits) const override {
    meter.charge(text.size());
    if (text.size() + add_special_tokens > limits.max_tokens) throw TooManyTokens(limits.max_tokens);
    std::vector<int32_t> ids;
    if (add_special_tokens) ids.push_back(kBegin);
    for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
    return ids;
  }
  std::string decode(std::span<const int32_t> tokens, bool) const override {
    std::string text;
    for (const int32_t token : tokens) {
      if (token < 256) text += static_cast<char>(token);
    }
    return text;
  }
  std::string tokenBytes(int32_t token) const override {
    if (token < 256) return std::string(1, static_cast<char>(token));
    return token == kBegin ? "<s>" : "</s>";
  }
  std::string tokenText(int32_t token) const override { return "<" + tokenBytes(token) + ">"; }
  std::unique_ptr<TextStream> newStream(const TextStreamOptions& options) const override {
    return std::make_unique<Stream>(options);
  }
  int32_t vocabSize() const override { return 258; }
  std::optional<int32_t> eosTokenId() const override { return kEnd; }
  bool hasChatTemplate() const override { return true; }
  bool hasChatTemplate(const std::string& name) const override { return name == "tool_use"; }
  bool knowsDeveloper(const ChatRendering& how) const override { return how.chat_template == "tool_use"; }
  std::string renderChat(const OrderedJson& messages, const ChatRendering& how, WorkMeter& meter) const override {
    meter.charge(messages.size());
    std::string prompt;
    if (how.chat_template) prompt += "[" + *how.chat_template + "]";
    for (const auto& [name, value] : how.variables.items()) prompt += "[" + name + "=" + value.dump() + "]";
    if (!how.documents.is_null()) prompt += how.documents.dump();
    for (const auto& message : messages) {
      if (message["role"] == "raise") fail(ErrorCode::kInvalidArgument, "/srv/model/template: roles must alternate");
      prompt += message["role"].get<std::string>() + ":";
      if (message.contains("content") && message["content"].is_string())
        prompt += message["content"].get<std::string>();
      prompt += ";";
    }
    return prompt;
  }

 private:
  class Stream : public TextStream {
   public:
    explicit Stream(const TextStreamOptions& options)
        : skip_special_tokens_(options.skip_special_tokens),
          stops_from_(options.stops_from),
          matcher_(options.stops, options.include_stop) {}
    Piece push(int32_t token) override {
      std::string text;
      if (token < 256) text = static_cast<char>(token);
      if (token == kEnd && !skip_special_tokens_) text = "</s>";
      if (stops_from_-- > 0) return {text, std::nullopt};
      text = matcher_.feed(text);
      if (!matcher_.stopped()) return {text, std::nullopt};
      return {text, matcher_.matchedStop()};
    }
    Piece finish() override { return {matcher_.flush(), std::nullopt}; }

   private:
    bool skip_special_tokens_;
    int32_t stops_from_;
    StopMatcher matcher_;
  };
};

// Answers every request by repeating the prompt's tokens, one token each step. An adapter's id is added to each token;
// for a composition, the sum of the ids times their weights. A prompt token that is an end id ends the answer. Runs on
// a thread of its own.
class FakeEngine : public EngineClient {
 public:
  explicit FakeEngine(std::chrono::microseconds step = std::chrono::microseconds(100)) : step_(step) {
    thread_ = std::thread([this] { run(); });
  }
  ~FakeEngine() override { stop(); }

  // Ends the thread. No callback runs afterwards.
  void stop() {
    {
      std::lock_guard lock(mutex_);
      stop_ = true;
    }
    wake_.notify_all();
    if (thread_.joinable()) thread_.join();
  }

  std::vector<executor::IdType> enqueue(const std::vector<executor::Request>& requests, Callback callback) override {
    std::lock_guard lock(mutex_);
    if (on_enqueue) on_enqueue();
    if (requests_.size() + requests.size() > queue_limit) fail(ErrorCode::kExhausted, "the request queue is full");
    std::vector<executor::IdType> ids;
    for (const executor::Request& request : requests) {
      requests_.emplace(++last_id_, Running{request, callback, {}});
      seen.push_back(request);
      ids.push_back(last_id_);
    }
    wake_.notify_all();
    return ids;
  }
  void cancel(executor::IdType id) override {
    std::lock_guard lock(mutex_);
    if (requests_.erase(id) > 0) ++cancelled;
  }
  void registerAdapter(executor::IdType taskId, executor::AdapterFiles files) override {
    if (!files.deferContent && content_error) throw Error(*content_error);
    adapters[taskId] = files.path;
  }
  // Calls while_inspecting, if it is set, and reports the files' names as tensors.
  executor::AdapterReport inspectAdapter(const executor::AdapterFiles& files) override {
    if (while_inspecting) while_inspecting(files);
    executor::AdapterReport report{
        .accepted = true, .kind = "lora", .maxRank = 8, .contentHash = "c0ffee", .hostBytes = 5};
    for (const std::string& name : files.open()->names(100).names) report.tensors.push_back({.name = name});
    return report;
  }
  void unregisterAdapter(executor::IdType taskId) override { adapters.erase(taskId); }
  std::optional<executor::AdapterState> adapterState(executor::IdType taskId) override {
    if (!adapters.contains(taskId)) return std::nullopt;
    executor::AdapterState state;
    state.taskId = taskId;
    state.pinned = pinned.contains(taskId);
    return state;
  }
  std::vector<executor::AdapterState> adapterStates() override {
    ++lists;
    std::vector<executor::AdapterState> states;
    for (const auto& [id, path] : adapters) states.push_back(*adapterState(id));
    return states;
  }
  // Loads at once, or fails with load_error, or with the error of on_load.
  void loadAdapter(executor::IdType taskId, bool pin, executor::Executor::AdapterLoadedCallback loaded) override {
    if (const std::exception_ptr error = on_load ? on_load(taskId) : load_error) {
      if (loaded) loaded(error);
      return;
    }
    loaded_ids.insert(taskId);
    if (pin) pinned.insert(taskId);
    if (loaded) loaded(nullptr);
  }
  void unpinAdapter(executor::IdType taskId) override { pinned.erase(taskId); }
  void moveAdapterPin(executor::IdType from, executor::IdType to) override {
    if (pinned.erase(from) > 0) pinned.insert(to);
  }
  int32_t maxInputLen() const override { return 200; }
  int32_t maxSeqLen() const override { return 256; }
  int32_t vocabSize() const override { return 258; }
  executor::LiveBatch liveBatch() const override {
    if (on_live_batch) on_live_batch();
    std::lock_guard lock(mutex_);
    executor::LiveBatch batch = live;
    for (const auto& [id, running] : requests_) {
      executor::RunningSequence& sequence = batch.running.emplace_back();
      sequence.requestId = id;
      sequence.clientId = running.request.getClientId();
      sequence.generates = !running.made.empty();
      sequence.inStep = true;
      sequence.promptTokens = static_cast<int32_t>(running.request.getInputTokenIds().size());
      sequence.generatedTokens = static_cast<int32_t>(running.made.size());
      if (const auto& lora = running.request.getLoraConfig()) sequence.adapters.push_back(lora->getTaskId());
      for (const auto& term : running.request.getLoraComposition()) sequence.adapters.push_back(term.taskId);
    }
    return batch;
  }

  size_t running() {
    std::lock_guard lock(mutex_);
    return requests_.size();
  }

  executor::LiveBatch live;  // liveBatch() adds the running requests
  size_t queue_limit = 64;
  std::function<void(const executor::AdapterFiles&)> while_inspecting;
  // Requests that run and those that come fail with this error at their next token.
  void failFromNow(const std::string& text, executor::ResponseErrorCode code,
                   std::optional<executor::AdapterFault> fault = std::nullopt) {
    const std::lock_guard lock(mutex_);
    error_text = text;
    error_code = code;
    adapter_fault = std::move(fault);
  }
  bool fails_at_once = false;  // before the first token
  bool times_out = false;      // every request ends as kTIMED_OUT before its first token
  std::string error_text;      // when set, every request fails with it after its first token
  executor::ResponseErrorCode error_code = executor::ResponseErrorCode::kINTERNAL;
  std::optional<executor::AdapterFault> adapter_fault;
  std::string adapter_content;  // Result::adapterContentHash of requests with an adapter
  executor::IdType replaced_after = std::numeric_limits<executor::IdType>::max();  // greater ids have "replaced"
  int32_t cached_tokens = 0;  // Result::cachedTokens of the first request, and twice as many of later ones
  // Requests that have so many tokens wait until the test changes the number. So they do not end before the test has
  // done with them what it shows.
  std::atomic<int> most_tokens{std::numeric_limits<int>::max()};
  std::atomic<int> cancelled{0};
  std::vector<executor::Request> seen;
  std::map<executor::IdType, std::filesystem::path> adapters;
  std::set<executor::IdType> pinned;
  std::set<executor::IdType> loaded_ids;  // of loadAdapter()
  std::atomic<int> lists = 0;             // calls of adapterStates()
  std::optional<Error> content_error;     // of reading an adapter's values at its registration
  std::exception_ptr load_error;
  std::function<void()> on_enqueue;
  std::function<void()> on_live_batch;
  std::function<std::exception_ptr(executor::IdType)> on_load;

 private:
  struct Running {
    executor::Request request;
    Callback callback;
    executor::VecTokens made;
  };

  void run() {
    std::unique_lock lock(mutex_);
    while (true) {
      wake_.wait(lock, [this] { return stop_ || !requests_.empty(); });
      if (stop_) return;
      for (auto it = requests_.begin(); it != requests_.end();) {
        const bool held = std::ssize(it->second.made) >= most_tokens;
        it = !held && advance(it->first, it->second) ? requests_.erase(it) : std::next(it);
      }
      lock.unlock();
      std::this_thread::sleep_for(step_);
      lock.lock();
    }
  }

  bool advance(executor::IdType id, Running& running) {
    const executor::Request& request = running.request;
    if (!error_text.empty() && (fails_at_once || !running.made.empty())) {
      running.callback(executor::Response(id, error_text, std::nullopt, error_code, adapter_fault));
      return true;
    }
    if (times_out) {
      executor::Result none;
      none.isFinal = true;
      none.finishReasons = {executor::FinishReason::kTIMED_OUT};
      none.outputTokenIds = {{}};
      running.callback(executor::Response(id, none));
      return true;
    }
    const auto& prompt = request.getInputTokenIds();
    int32_t token = prompt[running.made.size() % prompt.size()];
    if (token < 256 && request.getLoraConfig()) token += static_cast<int32_t>(request.getLoraConfig()->getTaskId());
    float shift = 0;
    for (const executor::WeightedLora& term : request.getLoraComposition()) {
      shift += term.weight * static_cast<float>(term.taskId);
    }
    if (token < 256) token += static_cast<int32_t>(shift);
    running.made.push_back(token);
    executor::Result result;
    const auto& extra = request.getExtraEndIds();
    result.cachedTokens = id > 1 ? 2 * cached_tokens : cached_tokens;
    const bool ended = request.getEndId() == token || std::find(extra.begin(), extra.end(), token) != extra.end();
    result.isFinal = ended || static_cast<int32_t>(running.made.size()) >= request.getMaxTokens();
    result.finishReasons = {ended            ? executor::FinishReason::kEND_ID
                            : result.isFinal ? executor::FinishReason::kLENGTH
                                             : executor::FinishReason::kNOT_FINISHED};
    result.outputTokenIds = {request.getStreaming() ? executor::VecTokens{token} : running.made};
    addLogProbs(request, running.made.size(), result);
    if (request.getLoraConfig() || !request.getLoraComposition().empty()) {
      result.adapterContentHash = id > replaced_after ? "replaced" : adapter_content;
    }
    if (result.isFinal || request.getStreaming()) running.callback(executor::Response(id, result));
    return result.isFinal;
  }

  // Log probabilities: -0.5 for each token of a greedy answer, -min(seed, 1000) for others, -0.25 for tokens of the
  // prompt. The likeliest tokens are the ids from the token upwards; each has a log probability 1 below that of the one
  // before.
  static void addLogProbs(const executor::Request& request, size_t made, executor::Result& result) {
    const executor::OutputConfig& output = request.getOutputConfig();
    const auto likeliest = [&](int32_t token, float log_prob) {
      std::vector<executor::TokenLogProb> all;
      for (int32_t i = 0; i < output.topLogProbs; ++i) all.push_back({token + i, log_prob - static_cast<float>(i)});
      return all;
    };
    if (output.returnLogProbs) {
      const auto seed = request.getSamplingConfig().getSeed();
      const float log_prob = seed ? -static_cast<float>(std::min<uint64_t>(*seed, 1000)) : -0.5f;
      result.logProbs.emplace().emplace_back(result.outputTokenIds[0].size(), log_prob);
      auto& top = result.topLogProbs.emplace().emplace_back();
      for (const int32_t token : result.outputTokenIds[0]) top.push_back(likeliest(token, log_prob));
    }
    if (!output.returnPromptLogProbs || (request.getStreaming() && made > 1)) return;
    const auto& prompt = request.getInputTokenIds();
    result.promptLogProbs.emplace(prompt.size() - 1, -0.25f);
    auto& top = result.promptTopLogProbs.emplace();
    for (size_t i = 1; i < prompt.size(); ++i) top.push_back(likeliest(prompt[i], -0.25f));
  }

  std::chrono::microseconds step_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  bool stop_ = false;
  executor::IdType last_id_ = 0;
  std::map<executor::IdType, Running> requests_;
  std::thread thread_;
};

// Records what was sent. wait() blocks until the answer is complete.
class FakeExchange : public HttpExchange {
 public:
  void addHeaders(const HttpHeaders& headers) override {
    std::lock_guard lock(mutex_);
    added_.insert(added_.end(), headers.begin(), headers.end());
  }
  void respond(HttpResponse response) override {
    std::lock_guard lock(mutex_);
    if (done_ || streaming_) return;
    response_ = std::move(response);
    response_.headers.insert(response_.headers.end(), added_.begin(), added_.end());
    response_.memory.release();  // as when the client has read it
    done_ = true;
    changed_.notify_all();
  }
  void beginStream(int status, std::string_view content_type) override {
    std::lock_guard lock(mutex_);
    streaming_ = true;
    response_.status = status;
    response_.content_type = content_type;
    response_.headers = added_;
  }
  bool write(std::string_view bytes) override {
    std::lock_guard lock(mutex_);
    response_.body += bytes;
    return !gone_;
  }
  void endStream() override {
    std::lock_guard lock(mutex_);
    done_ = true;
    changed_.notify_all();
  }
  void onAbort(std::function<void()> callback) override {
    {
      std::lock_guard lock(mutex_);
      if (!gone_) {
        abort_ = std::move(callback);
        return;
      }
    }
    callback();
  }

  void disconnect() {
    std::function<void()> callback;
    {
      std::lock_guard lock(mutex_);
      gone_ = true;
      callback.swap(abort_);
    }
    if (callback) callback();
  }
  HttpResponse wait() {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, kPatience, [this] { return done_; });
    if (!done_) return {.status = 0};
    return {.status = response_.status,
            .content_type = response_.content_type,
            .body = response_.body,
            .headers = response_.headers};
  }
  bool done() {
    std::lock_guard lock(mutex_);
    return done_;
  }
  bool streaming() {
    std::lock_guard lock(mutex_);
    return streaming_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  HttpHeaders added_;
  HttpResponse response_;
  bool done_ = false, streaming_ = false, gone_ = false;
  std::function<void()> abort_;
};

}  // namespace chorus::server
