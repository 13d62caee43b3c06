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
#include "server/model/text_codec.h"

namespace chorus::server {

struct ServedModel {
  std::string name;
  std::optional<executor::IdType> adapter_id;  // unset for the base model
  // Set in the base model's entry for one request that composes adapters; empty otherwise.
  std::vector<executor::WeightedLora> composition;
  // system_fingerprint: changes with the weights. If an adapter is replaced while a request waits, the answer has the
  // fingerprint of the content it was generated with.
  std::string fingerprint;
  int64_t created = 0;  // seconds since 1970
  std::shared_ptr<const TextCodec> text;
};

// Thread-safe. Entries are immutable; a request keeps the entry it began with.
class ModelCatalog {
 public:
  explicit ModelCatalog(ServedModel base);

  std::shared_ptr<const ServedModel> find(std::string_view name) const;  // nullptr when unknown
  const ServedModel& base() const { return *base_; }
  // The base model first, then the adapters, sorted by name.
  std::vector<std::shared_ptr<const ServedModel>> list() const;
  // Adds an adapter, or replaces the one of its name; requests that began with the old entry keep it. Returns false if
  // the name is the base model's.
  bool putAdapter(ServedModel adapter);
  // Removes an adapter; requests that began with its entry keep it.
  void removeAdapter(std::string_view name);

 private:
  std::shared_ptr<const ServedModel> base_;
  mutable std::mutex mutex_;
  std::map<std::string, std::shared_ptr<const ServedModel>, std::less<>> adapters_;
};

}  // namespace chorus::server
