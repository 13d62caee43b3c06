// The names that clients may put in "model": the base model and its adapters.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "chorus/request.h"
#include "server/model/text_waits.h"
#include "text/text_codec.h"

namespace chorus::server {

struct ServedModel {
  std::string name;
  std::optional<executor::IdType> adapter_id;  // unset for the base model
  // Set in the base model's entry for one request that composes adapters; empty otherwise.
  std::vector<executor::WeightedLora> composition;
  std::vector<std::string> composed_of = {};  // the names of the adapters of `composition`
  // system_fingerprint: changes with the weights. If an adapter is replaced while a request waits, the answer has the
  // fingerprint of the content it was generated with.
  std::string fingerprint;
  int64_t created = 0;  // seconds since 1970
  // All entries of one adapter id share one object. While somebody holds it, the engine keeps the id, so that a request
  // that was prepared with the id finds it. The entry of a composition holds those of its adapters.
  std::vector<std::shared_ptr<const void>> id_holds = {};
  std::shared_ptr<const TextCodec> text;  // null: the adapter's tokenizer files are not read yet
};

// Thread-safe. Entries are immutable; a request keeps the entry it began with.
class ModelCatalog {
 public:
  explicit ModelCatalog(ServedModel base);

  std::shared_ptr<const ServedModel> find(std::string_view name) const;  // nullptr when unknown
  const ServedModel& base() const { return *base_; }
  // The base model first, then the adapters, sorted by name.
  std::vector<std::shared_ptr<const ServedModel>> list() const;
  // Number of entries of list().
  size_t size() const;
  // Adds an adapter, or replaces the one of its name; requests that began with the old entry keep it. Returns false if
  // the name is the base model's.
  bool putAdapter(ServedModel adapter);
  // Removes an adapter; requests that began with its entry keep it.
  void removeAdapter(std::string_view name);

  // If the adapter is listed without a text, keeps `then` and returns the id of the wait. `then` runs once, on the
  // thread that adds the text, removes the adapter or ends the wait; it must be quick, must not throw and must not call
  // the adapter directory. Otherwise, and after endWaits(), returns nullopt and drops `then`.
  std::optional<TextWaits::Id> waitForText(const std::string& name, TextWaits::Then then);
  // Drops a wait without running its `then`.
  void cancelWait(TextWaits::Id id);
  // Ends the waits that began before `time`.
  void endWaitsBefore(TextWaits::Clock::time_point time);
  // Ends all waits, and begins no new ones: the server stops.
  void endWaits();
  // The adapters that are waited for, the one with the oldest wait first.
  std::vector<std::string> awaited() const;

 private:
  std::shared_ptr<const ServedModel> base_;
  mutable std::mutex mutex_;
  std::map<std::string, std::shared_ptr<const ServedModel>, std::less<>> adapters_;
  TextWaits waits_;
  bool waits_ended_ = false;
};

}  // namespace chorus::server
