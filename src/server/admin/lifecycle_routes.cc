#include "server/admin/lifecycle_routes.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <string>
#include <utility>

#include "base/free_text.h"
#include "base/log.h"
#include "runtime/adapter_cache/adapter_error.h"
#include "server/admin/upload_body.h"
#include "server/client_message.h"
#include "server/errors.h"
#include "server/http/body_memory.h"
#include "server/openai/models.h"
#include "server/openai/request_json.h"
#include "server/work/charged_body.h"

namespace chorus::server {
namespace {

constexpr std::string_view kAdapterPath = "/v1/admin/adapters/";

// The name in the path "/v1/admin/adapters/{name}".
std::string nameIn(const HttpRequest& request) {
  return percentDecode(std::string_view(request.path).substr(kAdapterPath.size()));
}

// The adapter in the path "/v1/admin/adapters/{name}" or "/v1/admin/adapters/{name}/action".
std::shared_ptr<const ServedModel> adapterIn(const ApiContext& context, const HttpRequest& request,
                                             std::string_view action = {}) {
  std::string_view path = std::string_view(request.path).substr(kAdapterPath.size());
  path.remove_suffix(action.size());
  const std::string name = percentDecode(path);
  auto model = context.models.find(name);
  if (model == nullptr || !model->adapter_id) throw ApiError::modelNotFound(name);
  return model;
}

// The body, which may be empty.
OrderedJson takeJson(HttpRequest& request, WorkMeter& meter) {
  if (request.body.empty()) return OrderedJson::object();
  OrderedJson body = parseRequestJson(request.body, meter, request.memory);
  request.body.clear();
  return body;
}

// Frees the body of an upload, or keeps its memory for the next upload.
void endBody(HttpRequest& request) {
  if (request.body_memory) request.body_memory->give(std::move(request.body), std::chrono::steady_clock::now());
  freeText(request.body);
  request.memory.release();
}

HttpResponse jsonAnswer(const OrderedJson& json, int status = 200) { return {.status = status, .body = toText(json)}; }

std::string_view adapterPlace(executor::AdapterState::Place place) {
  using Place = executor::AdapterState::Place;
  switch (place) {
    case Place::kLOADING:
      return "loading";
    case Place::kHOST:
      return "host";
    case Place::kDEVICE:
      return "device";
    case Place::kDISK:
      break;
  }
  return "disk";
}

OrderedJson hashJson(const std::string& hash) { return hash.empty() ? OrderedJson() : OrderedJson(hash); }

OrderedJson describeAdapter(const ServedModel& model, const executor::AdapterState& state,
                            const AdapterDirectory::History& history) {
  OrderedJson json = OrderedJson::object();
  json["name"] = model.name;
  json["created"] = model.created;
  json["state"] = adapterPlace(state.place);
  json["users"] = state.users;
  json["bytes"] = state.bytes;
  json["content_hash"] = hashJson(state.contentHash);
  json["pinned"] = state.pinned;
  json["uploaded"] = history.uploaded;
  json["earlier"] = OrderedJson::array();
  for (const auto& earlier : history.earlier) {
    json["earlier"].push_back({{"content_hash", hashJson(earlier.content_hash)}, {"created", earlier.created}});
  }
  return json;
}

// The error of a change or a check that could not be made, for the client. what: "The adapter 'a'". Call it in the
// catch block of `e`, because it may throw the current exception again.
[[noreturn]] void refuseAdapter(const Error& e, const std::string& what) {
  if (const auto* const stopped = dynamic_cast<const WorkStopped*>(&e)) throw readingStopped(*stopped);
  const std::string message = clientMessage(e.what());
  switch (e.code()) {
    case ErrorCode::kNotFound:
      throw ApiError(404, fmt::format("{}: {}.", what, message), "invalid_request_error", std::nullopt,
                     "adapter_not_found");
    case ErrorCode::kInvalidArgument:
    case ErrorCode::kUnsupported:
    case ErrorCode::kCorrupt:
    case ErrorCode::kTooLarge:
      throw ApiError::invalid(fmt::format("{} is refused: {}", what, message), std::nullopt, "adapter_refused");
    case ErrorCode::kConflict:
      throw ApiError(409, fmt::format("{}: {}.", what, message), "conflict_error", std::nullopt, "conflict");
    case ErrorCode::kExhausted:
      throw ApiError(507, fmt::format("{} cannot be stored: {}.", what, message), "server_error", std::nullopt,
                     "upload_space_full");
    default:
      throw Error(e);
  }
}

std::string adapterNamed(const std::string& name) { return fmt::format("The adapter '{}'", name); }

// The answer to a load that failed. field: that of the request which names the adapter, if one does.
ApiError loadError(const std::exception_ptr& error, const std::string& name, const std::optional<std::string>& field) {
  try {
    std::rethrow_exception(error);
  } catch (const Error& e) {
    const auto* const of_adapter = dynamic_cast<const AdapterError*>(&e);
    const std::string message = clientMessage(of_adapter != nullptr ? of_adapter->fault().reason : e.what());
    switch (e.code()) {
      case ErrorCode::kNotFound:
        return ApiError::modelNotFound(name);
      case ErrorCode::kBusy:
        return ApiError::adapterCacheFull(name);
      case ErrorCode::kTooLarge:
        return ApiError::adapterTooLarge(name);
      case ErrorCode::kInvalidArgument:
      case ErrorCode::kCorrupt:
      case ErrorCode::kUnsupported:
        if (of_adapter != nullptr && of_adapter->fault().loading) return ApiError::adapterRefused(name, message, field);
        if (e.code() == ErrorCode::kUnsupported) return currentApiError();
        return ApiError::invalid(fmt::format("The adapter '{}': {}.", name, message));
      case ErrorCode::kConflict:
        return ApiError::conflict(message);
      default:
        return currentApiError();
    }
  } catch (...) {
    return currentApiError();
  }
}

// A load by name for which a request waits.
struct AwaitedLoad {
  const ApiContext& context;
  std::shared_ptr<HttpExchange> exchange;
  HttpResponse answer;  // to a load that succeeds
  ErrorForm form;
  uint64_t client;
  std::string name;
  std::optional<std::string> field;  // of the request, which names the adapter
  executor::IdType adapter_id;
  bool pin;
};

// The id of the adapter that has the load's name now, if the load failed because it is another one; otherwise nullopt.
// An adapter that is replaced by one with another tokenizer gets a new id, and the load of the old id notices the new
// files first.
std::optional<executor::IdType> replacementOf(const AwaitedLoad& load, const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const Error& e) {
    if (e.code() != ErrorCode::kConflict) return std::nullopt;
  } catch (...) {
    return std::nullopt;
  }
  const auto model = load.context.models.find(load.name);
  return model == nullptr || model->adapter_id == load.adapter_id ? std::nullopt : model->adapter_id;
}

void startLoad(const std::shared_ptr<AwaitedLoad>& load) {
  const auto loaded = [load](const std::exception_ptr& error) {
    try {
      if (const auto other = error ? replacementOf(*load, error) : std::nullopt) {
        load->adapter_id = *other;
        return startLoad(load);
      }
      // Not on the step thread: the access log may have to wait for the disk.
      load->context.delivery.post(load->client, 0, [load, error] {
        load->exchange->respond(error ? loadError(error, load->name, load->field).response(load->form)
                                      : std::move(load->answer));
      });
    } catch (...) {  // out of memory: the exchange answers with status 500 when it is destroyed
      return;
    }
  };
  load->context.engine.loadAdapter(load->adapter_id, load->pin, loaded);
}

std::string_view wordFor(AdapterDirectory::Loaded how) {
  using Loaded = AdapterDirectory::Loaded;
  return how == Loaded::kAdded ? "added" : how == Loaded::kReplaced ? "replaced" : "unchanged";
}

OrderedJson servedJson(const std::string& name, const AdapterDirectory::Served& served) {
  return {{"name", name}, {"status", wordFor(served.how)}, {"content_hash", hashJson(served.content_hash)}};
}

std::string pathIn(HttpRequest& request, WorkMeter& meter) {
  const OrderedJson body = takeJson(request, meter);
  std::string path = FieldReader(body).string("path").value_or("");
  if (!path.empty()) return path;
  throw ApiError::invalid(
      "The body must have a 'path', or be an upload: multipart/form-data or application/octet-stream.", "path");
}

// The report, of at most kMostTensors tensors: those that are refused come first.
OrderedJson reportJson(executor::AdapterReport report) {
  using Verdict = executor::AdapterTensorReport::Verdict;
  constexpr size_t kMostTensors = 20'000;
  OrderedJson json = OrderedJson::object();
  json["accepted"] = report.accepted;
  json["error"] = report.accepted ? OrderedJson() : OrderedJson(clientMessage(report.error));
  json["kind"] = report.kind;
  json["rank"] = report.maxRank;
  json["content_hash"] = hashJson(report.contentHash);
  json["host_bytes"] = report.hostBytes;
  json["device_bytes"] = report.deviceBytes;
  std::ranges::stable_partition(report.tensors, [](const auto& tensor) { return tensor.verdict == Verdict::kREFUSED; });
  json["tensor_count"] = report.tensors.size();
  json["tensors"] = OrderedJson::array();
  for (const executor::AdapterTensorReport& tensor : report.tensors) {
    if (json["tensors"].size() == kMostTensors) break;
    OrderedJson one = OrderedJson::object();
    one["name"] = tensor.name;
    one["dtype"] = tensor.dataType;
    one["shape"] = tensor.shape;
    one["verdict"] = tensor.verdict == Verdict::kUSED       ? "used"
                     : tensor.verdict == Verdict::kLEFT_OUT ? "left_out"
                                                            : "refused";
    one["target"] = tensor.target.empty() ? OrderedJson() : OrderedJson(tensor.target);
    one["reason"] = tensor.reason.empty() ? OrderedJson() : OrderedJson(clientMessage(tensor.reason));
    json["tensors"].push_back(std::move(one));
  }
  return json;
}

void putAdapter(const ApiContext& context, HttpRequest& request, const std::shared_ptr<HttpExchange>& exchange,
                WorkMeter& meter) {
  AdapterDirectory& adapters = *context.adapters;
  const std::string name = nameIn(request);
  const std::string_view type = request.header("content-type");
  AdapterDirectory::Served served;
  try {
    if (isUpload(type)) {
      const UploadedAdapter uploaded = parseUpload(type, request.body, meter);
      served = adapters.upload(name, uploaded.config, uploaded.weights, &meter);
      endBody(request);
    } else {
      served = adapters.serve(name, pathIn(request, meter), &meter);
    }
  } catch (const TooManyAdapters& e) {
    throw tooManyAdapters(name, e);
  } catch (const Error& e) {
    refuseAdapter(e, adapterNamed(name));
  }
  log::info("adapter {} by request: {}", wordFor(served.how), name);
  // The first request for it finds it loaded, or joins the load.
  if (const auto model = context.models.find(name)) context.engine.loadAdapter(*model->adapter_id, false, nullptr);
  exchange->respond(jsonAnswer(servedJson(name, served)));
}

}  // namespace

ApiError readingStopped(const WorkStopped& e) {
  if (e.reason() != WorkStopped::Reason::kDeadline) return currentApiError();
  return ApiError(504, "Reading the adapter exceeded the server's time limit.", "server_error", std::nullopt,
                  "timeout");
}

ApiError tooManyAdapters(const std::string& name, const TooManyAdapters& e) {
  return ApiError(507, fmt::format("{} cannot be added: {}.", adapterNamed(name), e.what()), "server_error",
                  std::nullopt, "too_many_adapters");
}

AdapterDirectory& adaptersOf(const ApiContext& context) {
  if (context.adapters == nullptr) {
    throw ApiError::forbidden(
        "This server does not load, unload or list adapters by request; the operator can allow it with "
        "--enable_admin.",
        std::nullopt, "admin_not_enabled");
  }
  return *context.adapters;
}

void loadThenAnswer(const ApiContext& context, const HttpRequest& request,
                    const std::shared_ptr<HttpExchange>& exchange, const ServedModel& adapter, bool pin,
                    std::optional<std::string> field, HttpResponse answer) {
  startLoad(std::make_shared<AwaitedLoad>(AwaitedLoad{.context = context,
                                                      .exchange = exchange,
                                                      .answer = std::move(answer),
                                                      .form = errorFormFor(request.path, request.id),
                                                      .client = request.client ? request.client->id() : 0,
                                                      .name = adapter.name,
                                                      .field = std::move(field),
                                                      .adapter_id = *adapter.adapter_id,
                                                      .pin = pin}));
}

void handleAdapterStates(const ApiContext& context, HttpRequest& request, const std::shared_ptr<HttpExchange>& exchange,
                         WorkMeter& meter) {
  const AdapterDirectory& adapters = adaptersOf(context);
  chargeList(meter, context.models);
  auto models = context.models.list();
  std::erase_if(models, [](const auto& model) { return !model->adapter_id; });
  constexpr size_t kStateBytes = 512;
  ClientCharge of_states(request.client);
  addCharge(of_states, models.size() * kStateBytes);
  std::map<executor::IdType, executor::AdapterState> states;
  for (executor::AdapterState& state : context.engine.adapterStates()) states[state.taskId] = std::move(state);
  ChargedBody body(request.client);
  body.add(R"({"object":"list","data":)");
  body.addArray(models.size(), [&](size_t i) {
    const ServedModel& model = *models[i];
    return toText(describeAdapter(model, states[*model.adapter_id], adapters.historyOf(model.name)));
  });
  body.add("}");
  exchange->respond(body.response());
}

void handleAdminAdapter(const ApiContext& context, HttpRequest& request, const std::shared_ptr<HttpExchange>& exchange,
                        WorkMeter& meter) {
  AdapterDirectory& adapters = adaptersOf(context);
  if (request.method == "PUT") return putAdapter(context, request, exchange, meter);
  const auto model = adapterIn(context, request);
  if (request.method == "DELETE") {
    if (!adapters.unload(model->name)) throw ApiError::modelNotFound(model->name);
    log::info("adapter unloaded by request: {}", model->name);
    return exchange->respond(jsonAnswer({{"name", model->name}, {"status", "removed"}}));
  }
  const executor::AdapterState own = context.engine.adapterState(*model->adapter_id).value_or(executor::AdapterState());
  exchange->respond(jsonAnswer(describeAdapter(*model, own, adapters.historyOf(model->name))));
}

void handleAdapterValidation(const ApiContext& context, HttpRequest& request,
                             const std::shared_ptr<HttpExchange>& exchange, WorkMeter& meter) {
  AdapterDirectory& adapters = adaptersOf(context);
  const std::string_view type = request.header("content-type");
  executor::AdapterReport report;
  try {
    if (isUpload(type)) {
      const UploadedAdapter uploaded = parseUpload(type, request.body, meter);
      report = adapters.inspectUpload(uploaded.config, uploaded.weights, &meter);
    } else {
      report = adapters.inspect(pathIn(request, meter), &meter);
    }
  } catch (const Error& e) {
    refuseAdapter(e, "The adapter");
  }
  endBody(request);
  exchange->respond(jsonAnswer(reportJson(std::move(report))));
}

void handleAdapterPin(const ApiContext& context, HttpRequest& request, const std::shared_ptr<HttpExchange>& exchange,
                      WorkMeter&) {
  adaptersOf(context);
  const auto model = adapterIn(context, request, "/pin");
  const bool pin = request.method == "POST";
  HttpResponse answer = jsonAnswer({{"name", model->name}, {"pinned", pin}});
  if (pin) return loadThenAnswer(context, request, exchange, *model, true, std::nullopt, std::move(answer));
  context.engine.unpinAdapter(*model->adapter_id);
  exchange->respond(std::move(answer));
}

void handleAdapterPrefetch(const ApiContext& context, HttpRequest& request,
                           const std::shared_ptr<HttpExchange>& exchange, WorkMeter& meter) {
  adaptersOf(context);
  const auto model = adapterIn(context, request, "/prefetch");
  const OrderedJson body = takeJson(request, meter);
  if (FieldReader(body).boolean("wait").value_or(true)) {
    HttpResponse answer = jsonAnswer({{"name", model->name}, {"status", "loaded"}});
    return loadThenAnswer(context, request, exchange, *model, false, std::nullopt, std::move(answer));
  }
  context.engine.loadAdapter(*model->adapter_id, false, nullptr);
  exchange->respond(jsonAnswer({{"name", model->name}, {"status", "loading"}}, 202));
}

void handleAdapterRollback(const ApiContext& context, HttpRequest& request,
                           const std::shared_ptr<HttpExchange>& exchange, WorkMeter& meter) {
  AdapterDirectory& adapters = adaptersOf(context);
  const std::string name = adapterIn(context, request, "/rollback")->name;
  const OrderedJson body = takeJson(request, meter);
  AdapterDirectory::Served served;
  try {
    served = adapters.rollBack(name, FieldReader(body).string("content_hash").value_or(""), &meter);
  } catch (const Error& e) {
    refuseAdapter(e, adapterNamed(name));
  }
  log::info("adapter rolled back by request: {}", name);
  if (const auto model = context.models.find(name)) context.engine.loadAdapter(*model->adapter_id, false, nullptr);
  exchange->respond(jsonAnswer(servedJson(name, served)));
}

}  // namespace chorus::server
