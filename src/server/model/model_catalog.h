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
  std::optional<executor::IdType> adapterId;  // unset for the base model
  // Of the base model for one request that composes adapters; else empty.
  std::vector<executor::WeightedLora> composition;
  // system_fingerprint: changes with the weights. Of an adapter that is replaced while a request comes, the answer's
  // own is that of what the request ran with.
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
  // Base first, adapters by name.
  std::vector<std::shared_ptr<const ServedModel>> list() const;
  // Takes the place of an adapter of its name; requests that began with that one keep it. False when the name is the
  // base model's.
  bool putAdapter(ServedModel adapter);
  // Requests that began with it keep it.
  void removeAdapter(std::string_view name);

 private:
  std::shared_ptr<const ServedModel> base_;
  mutable std::mutex mutex_;
  std::map<std::string, std::shared_ptr<const ServedModel>, std::less<>> adapters_;
};

}  // namespace chorus::server
