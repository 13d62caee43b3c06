#include "cli/bench/bench_serve.h"

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <memory>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "cli/bench/serve/serve_report.h"
#include "cli/flag_values.h"
#include "cli/print_text.h"
#include "server/http/shutdown_signal.h"

namespace chorus {
namespace {

constexpr int kVerifiedPrompts = 8;  // without --pool

struct BenchServeArgs {
  std::string url, arrival = "poisson", prompt = "128", output = "32", extra_body = "{}", api_key_env, ca_cert, json;
  std::vector<std::string> models, adapters;
  double rate = 1.0, duration = 0, skew = 0, churn = 0, timeout = 600, slo_first_ms = 0, slo_gap_ms = 0,
         temperature = 0;
  int64_t requests = 0, retries = 0;
  int vocabulary = 256, shared_prefix = 0, streams = 0, pool = 0;
  bool verify = false;
  uint64_t seed = 0;
};

void addOnce(std::vector<std::string>& names, const std::string& name) {
  if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
}

std::vector<std::string> modelsOf(const BenchServeArgs& args, HttpClient& client, const HttpHeaders& headers) {
  const auto isAll = [](const std::vector<std::string>& names) { return names == std::vector<std::string>{"all"}; };
  std::vector<std::string> served, names;
  // Fails here when the server cannot be reached, which differs from a server that refuses each request.
  served = servedModels(client, headers);
  if (isAll(args.models)) {
    names = served;
  } else {
    for (const std::string& name : args.models) addOnce(names, name);
  }
  if (isAll(args.adapters)) {
    for (size_t i = 1; i < served.size(); ++i) addOnce(names, served[i]);
    if (names.empty()) fail(ErrorCode::kNotFound, "--adapters all: the server lists {} alone", served.front());
  } else {
    for (const std::string& name : args.adapters) addOnce(names, name);
  }
  if (names.empty()) names.push_back(served.front());
  return names;
}

HttpHeaders headersOf(const BenchServeArgs& args) {
  if (args.api_key_env.empty()) return {};
  const char* key = std::getenv(args.api_key_env.c_str());
  if (key == nullptr) fail(ErrorCode::kInvalidArgument, "--api_key_env {}: no such variable", args.api_key_env);
  return {{"authorization", std::string("Bearer ") + key}};
}

RequestPlanOptions planOf(const BenchServeArgs& args) {
  RequestPlanOptions plan{
      .arrival = args.arrival == "constant" ? ArrivalKind::kConstant : ArrivalKind::kPoisson,
      .rate = args.rate,
      .requests = args.requests,
      .duration = args.duration,
      .prompt = parseLengthRange(args.prompt, "--prompt"),
      .output = parseLengthRange(args.output, "--output"),
      .shared_prefix = args.shared_prefix,
      .vocabulary = args.vocabulary,
      .skew = args.skew,
      .churn_seconds = args.churn,
      .seed = args.seed,
  };
  if (plan.requests == 0 && plan.duration == 0) plan.requests = 100;
  plan.pool = args.pool > 0 || !args.verify ? args.pool : kVerifiedPrompts;
  return plan;
}

Json extraBodyOf(const BenchServeArgs& args) {
  constexpr const char* kFlag = "--extra_body";
  Json body = parseJson(args.extra_body, kFlag);
  if (!body.is_object()) fail(ErrorCode::kInvalidArgument, "{}: give a JSON object", kFlag);
  for (const char* field : {"model", "prompt", "stream", "stream_options"}) {
    if (body.contains(field)) fail(ErrorCode::kInvalidArgument, "{}: {} is the load's own field", kFlag, field);
  }
  return body;
}

// Refuses a load whose answers are random.
void checkVerifiable(const ServeLoad& load) {
  const Json temperature = load.extra_body.value("temperature", Json(load.temperature));
  if (temperature == Json(0.0) || load.extra_body.contains("seed")) return;
  fail(ErrorCode::kInvalidArgument,
       "--verify: answers of temperature {} are random; use --temperature 0, or a seed in "
       "--extra_body",
       temperature.dump());
}

Json loadJson(const BenchServeArgs& args, const RequestPlanOptions& plan) {
  return {{"url", args.url},
          {"arrival", args.streams > 0 ? Json(nullptr) : Json(args.arrival)},
          {"rate", args.streams > 0 ? Json(nullptr) : Json(args.rate)},
          {"streams", args.streams > 0 ? Json(args.streams) : Json(nullptr)},
          {"requests", plan.requests},
          {"duration_s", args.duration},
          {"prompt_tokens", {plan.prompt.least, plan.prompt.most}},
          {"output_tokens", {plan.output.least, plan.output.most}},
          {"pool", plan.pool},
          {"retries", args.retries},
          {"verify", args.verify},
          {"shared_prefix", args.shared_prefix},
          {"models", plan.models},
          {"zipf", args.skew},
          {"churn_s", args.churn},
          {"seed", args.seed}};
}

void runBenchServe(const BenchServeArgs& args) {
  initLogging("warning");
  ServeLoad load{.plan = planOf(args),
                 .headers = headersOf(args),
                 .temperature = args.temperature,
                 .extra_body = extraBodyOf(args),
                 .streams = args.streams,
                 .retries = args.retries,
                 .verify = args.verify};
  if (args.verify) checkVerifiable(load);
  server::ShutdownSignal signal;  // created before the client's thread, so that this thread does not receive the signal
  const HttpTarget target = parseHttpUrl(args.url);
  if (!args.ca_cert.empty() && !target.tls) fail(ErrorCode::kInvalidArgument, "--ca_cert needs an https:// URL");
  HttpClient client(target, std::chrono::milliseconds(static_cast<int64_t>(args.timeout * 1e3)), args.ca_cert);
  load.models = modelsOf(args, client, load.headers);
  load.plan.models = load.models.size();
  ServeTargets targets;
  if (args.slo_first_ms > 0) targets.first_s = args.slo_first_ms / 1e3;
  if (args.slo_gap_ms > 0) targets.gap_s = args.slo_gap_ms / 1e3;
  signal.becomeGraceful();
  const LoadResult result =
      runServeLoad(client, load, [&](std::chrono::milliseconds timeout) { return signal.waitFor(timeout); });
  const ServeSummary summary = summarizeLoad(result, targets);
  printText(serveTable(summary, targets));
  if (!args.json.empty()) {
    Json document = serveJson(result, summary, targets, load.models);
    document["load"] = loadJson(args, load.plan);
    writeFileAtomically(args.json, document.dump(1, ' ', false, Json::error_handler_t::replace) + "\n");
  }
  if (summary.different > 0) {
    fail(ErrorCode::kConflict, "--verify: {} of {} answers are not their solo answers; the first: {}",
         summary.different, summary.verified, result.first_difference);
  }
  if (summary.complete == 0 && !result.stopped) fail(ErrorCode::kConflict, "no request was answered in full");
}

}  // namespace

void addBenchServe(CLI::App& bench) {
  auto args = std::make_shared<BenchServeArgs>();
  CLI::App* serve = bench.add_subcommand(
      "serve",
      "A load on a server of the OpenAI completions API. In an open loop (--rate) requests arrive by a plan whatever\n"
      "becomes of the earlier ones, and their latencies count from the planned arrival. In a closed loop (--streams) "
      "a\n"
      "request begins when another ends. Each request is a stream on a connection of its own. Ctrl-C ends the load "
      "and\n"
      "prints what was measured.");
  serve->add_option("--url", args->url, "The server, e.g. http://127.0.0.1:8000; https:// uses TLS")->required();
  serve->add_option("--model", args->models, "Models to ask, the most popular first; all: those of /v1/models")
      ->delimiter(',');
  serve->add_option("--adapters", args->adapters, "Adapters to ask besides; all: of /v1/models all but the first")
      ->delimiter(',');
  auto* rate = serve->add_option("--rate", args->rate, "Arrivals a second of an open loop")
                   ->capture_default_str()
                   ->check(inRange(1e-6, 1e6));
  auto* arrival = serve->add_option("--arrival", args->arrival, "poisson|constant")
                      ->capture_default_str()
                      ->check(oneOf({"poisson", "constant"}));
  serve->add_option("--streams", args->streams, "A closed loop of this many streams at a time")
      ->check(inRange(1, 100'000))
      ->excludes(rate)
      ->excludes(arrival);
  serve->add_option("--requests", args->requests, "How many at most; without this and --duration 100")
      ->check(inRange(int64_t{1}, int64_t{10'000'000}));
  serve->add_option("--duration", args->duration, "Seconds in which they arrive")->check(inRange(1e-3, 1e6));
  serve->add_option("--prompt", args->prompt, "Tokens of each prompt, or a range: 64:256")->capture_default_str();
  serve->add_option("--output", args->output, "Tokens of each answer, or a range")->capture_default_str();
  serve->add_option("--shared_prefix", args->shared_prefix, "First tokens of a prompt that are the model's own")
      ->capture_default_str()
      ->check(inRange(0, 1 << 20));
  serve
      ->add_option("--pool", args->pool, "Draw each prompt from this many, the same for every model but for the prefix")
      ->check(inRange(1, 1 << 16));
  serve->add_flag("--verify", args->verify,
                  "Ask every model every prompt of the pool (--pool, 8 without it) alone before the load, and compare\n"
                  "each answer of the load with this one, byte for byte. A difference ends with exit status 1");
  serve
      ->add_option("--retries", args->retries,
                   "Tries of a request after answers with status 429 or 503, each after the time of retry-after-ms or\n"
                   "retry-after")
      ->capture_default_str()
      ->check(inRange(int64_t{0}, int64_t{1'000'000}));
  serve
      ->add_option("--extra_body", args->extra_body,
                   "JSON object of further fields of each request: {\"logprobs\": 1}; --verify compares what they add")
      ->capture_default_str();
  serve->add_option("--vocabulary", args->vocabulary, "Prompts are random token ids below this")
      ->capture_default_str()
      ->check(inRange(2, 1 << 24));
  serve->add_option("--zipf", args->skew, "Skew of the models' popularity, as 1 / rank^ZIPF; 0: all alike")
      ->capture_default_str()
      ->check(inRange(0.0, 10.0));
  serve->add_option("--churn", args->churn, "Every so many seconds other models are the popular ones; 0: never")
      ->capture_default_str()
      ->check(inRange(0.0, 1e6));
  serve->add_option("--temperature", args->temperature, "Softmax temperature of the requests; 0: greedy")
      ->capture_default_str()
      ->check(inRange(0.0, 2.0));
  serve->add_option("--seed", args->seed, "Of arrivals, models, lengths and prompts")
      ->check(inRange(uint64_t{0}, std::numeric_limits<uint64_t>::max()))
      ->capture_default_str();
  serve->add_option("--timeout_s", args->timeout, "Of a whole request")
      ->capture_default_str()
      ->check(inRange(1e-3, 1e6));
  serve->add_option("--slo_ttft_ms", args->slo_first_ms, "Goodput counts requests whose first token came within this")
      ->check(inRange(1e-3, 1e9));
  serve->add_option("--slo_itl_ms", args->slo_gap_ms, "... and whose later tokens took this each on average")
      ->check(inRange(1e-3, 1e9));
  serve->add_option("--api_key_env", args->api_key_env, "Environment variable that holds the API key");
  serve->add_option(
      "--ca_cert", args->ca_cert,
      "PEM file of the authorities that the certificate of an https:// server must come from, instead of\n"
      "those that the system trusts");
  serve->add_option("--json", args->json, "Write the figures here; bench/plot_load.py plots the latencies");
  serve->callback([args] { runBenchServe(*args); });
}

}  // namespace chorus
