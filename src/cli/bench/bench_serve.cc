#include "cli/bench/bench_serve.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <memory>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "cli/bench/serve/serve_report.h"
#include "cli/flag_values.h"
#include "server/http/shutdown_signal.h"

namespace chorus {
namespace {

struct BenchServeArgs {
  std::string url, arrival = "poisson", prompt = "128", output = "32", api_key_env, json;
  std::vector<std::string> models, adapters;
  double rate = 1.0, duration = 0, skew = 0, churn = 0, timeout = 600, slo_first_ms = 0, slo_gap_ms = 0,
         temperature = 0;
  int64_t requests = 0;
  int vocabulary = 256, shared_prefix = 0;
  uint64_t seed = 0;
};

void addOnce(std::vector<std::string>& names, const std::string& name) {
  if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
}

std::vector<std::string> modelsOf(const BenchServeArgs& args, HttpClient& client, const HttpClient::Headers& headers) {
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

HttpClient::Headers headersOf(const BenchServeArgs& args) {
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
  return plan;
}

Json loadJson(const BenchServeArgs& args, const RequestPlanOptions& plan) {
  return {{"url", args.url},
          {"arrival", args.arrival},
          {"rate", args.rate},
          {"requests", plan.requests},
          {"duration_s", args.duration},
          {"prompt_tokens", {plan.prompt.least, plan.prompt.most}},
          {"output_tokens", {plan.output.least, plan.output.most}},
          {"shared_prefix", args.shared_prefix},
          {"models", plan.models},
          {"zipf", args.skew},
          {"churn_s", args.churn},
          {"seed", args.seed}};
}

void runBenchServe(const BenchServeArgs& args) {
  initLogging("warning");
  ServeLoad load{.plan = planOf(args), .headers = headersOf(args), .temperature = args.temperature};
  server::ShutdownSignal signal;  // created before the client's thread, so that this thread does not receive the signal
  HttpClient client(parseHttpUrl(args.url), std::chrono::milliseconds(static_cast<int64_t>(args.timeout * 1e3)));
  load.models = modelsOf(args, client, load.headers);
  load.plan.models = load.models.size();
  ServeTargets targets;
  if (args.slo_first_ms > 0) targets.first_s = args.slo_first_ms / 1e3;
  if (args.slo_gap_ms > 0) targets.gap_s = args.slo_gap_ms / 1e3;
  signal.becomeGraceful();
  const LoadResult result =
      runServeLoad(client, load, [&](std::chrono::milliseconds timeout) { return signal.waitFor(timeout); });
  const ServeSummary summary = summarizeLoad(result, targets);
  std::printf("%s", serveTable(summary, targets).c_str());
  std::fflush(stdout);
  if (!args.json.empty()) {
    Json document = serveJson(result, summary, targets, load.models);
    document["load"] = loadJson(args, load.plan);
    writeFileAtomically(args.json, document.dump(1, ' ', false, Json::error_handler_t::replace) + "\n");
  }
  if (summary.complete == 0 && !result.stopped) fail(ErrorCode::kConflict, "no request was answered in full");
}

}  // namespace

void addBenchServe(CLI::App& bench) {
  auto args = std::make_shared<BenchServeArgs>();
  CLI::App* serve = bench.add_subcommand(
      "serve",
      "An open-loop load on a server of the OpenAI completions API: requests arrive by a plan whatever becomes of the\n"
      "earlier ones, and their latencies count from the planned arrival. Each request is a stream on a connection of\n"
      "its own. Ctrl-C ends the load and prints what was measured.");
  serve->add_option("--url", args->url, "The server, e.g. http://127.0.0.1:8000")->required();
  serve->add_option("--model", args->models, "Models to ask, the most popular first; all: those of /v1/models")
      ->delimiter(',');
  serve->add_option("--adapters", args->adapters, "Adapters to ask besides; all: of /v1/models all but the first")
      ->delimiter(',');
  serve->add_option("--rate", args->rate, "Arrivals a second")->capture_default_str()->check(inRange(1e-6, 1e6));
  serve->add_option("--arrival", args->arrival, "poisson|constant")
      ->capture_default_str()
      ->check(oneOf({"poisson", "constant"}));
  serve->add_option("--requests", args->requests, "How many at most; without this and --duration 100")
      ->check(inRange(int64_t{1}, int64_t{10'000'000}));
  serve->add_option("--duration", args->duration, "Seconds in which they arrive")->check(inRange(1e-3, 1e6));
  serve->add_option("--prompt", args->prompt, "Tokens of each prompt, or a range: 64:256")->capture_default_str();
  serve->add_option("--output", args->output, "Tokens of each answer, or a range")->capture_default_str();
  serve->add_option("--shared_prefix", args->shared_prefix, "First tokens of a prompt that are the model's own")
      ->capture_default_str()
      ->check(inRange(0, 1 << 20));
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
  serve->add_option("--json", args->json, "Write the figures here; bench/plot_load.py plots the latencies");
  serve->callback([args] { runBenchServe(*args); });
}

}  // namespace chorus
