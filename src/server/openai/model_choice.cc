#include "server/openai/model_choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/sha256.h"
#include "server/errors.h"

namespace chorus::server {
namespace {

constexpr const char* kField = "adapters";
constexpr size_t kMostTerms = 32;
}  // namespace

std::vector<AdapterTerm> parseAdapterTerms(const FieldReader& fields) {
  std::vector<AdapterTerm> terms;
  const OrderedJson* array = fields.find(kField);
  if (array == nullptr) return terms;
  if (!array->is_array()) fields.refuseType(kField, "an array of objects with 'name' and 'weight'");
  if (array->empty()) fields.refuse(kField, "it must not be empty; leave it out for one model alone");
  if (array->size() > kMostTerms) fields.refuse(kField, fmt::format("at most {} adapters", kMostTerms));
  constexpr double kMost = std::numeric_limits<float>::max();
  for (size_t i = 0; i < array->size(); ++i) {
    const FieldReader term((*array)[i], fmt::format("{}[{}]", kField, i));
    const auto name = term.string("name");
    if (!name || name->empty()) term.refuse("name", "the name of an adapter is needed");
    const auto weight = term.number("weight", -kMost, kMost);
    if (!weight) term.refuse("weight", "a number is needed");
    const bool twice =
        std::any_of(terms.begin(), terms.end(), [&](const AdapterTerm& other) { return other.name == *name; });
    if (twice) term.refuse("name", "an adapter may be named once; give it the sum of its weights");
    terms.push_back({*name, static_cast<float>(*weight)});
  }
  return terms;
}

std::shared_ptr<const ServedModel> chooseModel(const ModelView& models, const std::string& model,
                                               const std::vector<AdapterTerm>& terms) {
  auto named = models.find(model);
  if (!named) throw ApiError::modelNotFound(model);
  if (terms.empty() && named->text == nullptr) throw TextPending{model};
  if (terms.empty()) return named;
  if (named->adapter_id) {
    throw ApiError::invalid(
        fmt::format("With '{}', 'model' must be the base model, `{}`; name every adapter in the list.", kField,
                    models.base().name),
        kField, "invalid_value");
  }
  auto composed = std::make_shared<ServedModel>(*named);
  Sha256 weights;
  weights.update(named->fingerprint);
  for (size_t i = 0; i < terms.size(); ++i) {
    const auto adapter = models.find(terms[i].name);
    if (!adapter) throw ApiError::modelNotFound(terms[i].name);
    if (!adapter->adapter_id) {
      const std::string field = fmt::format("{}[{}].name", kField, i);
      throw ApiError::invalid(fmt::format("Invalid value for '{}': it is the base model, not an adapter.", field),
                              field, "invalid_value");
    }
    if (adapter->text == nullptr) throw TextPending{adapter->name};
    composed->composition.push_back({*adapter->adapter_id, terms[i].weight});
    composed->composed_of.push_back(adapter->name);
    composed->id_holds.insert(composed->id_holds.end(), adapter->id_holds.begin(), adapter->id_holds.end());
    weights.update(fmt::format(" {} {}", adapter->fingerprint, terms[i].weight));
  }
  composed->fingerprint = "fp_" + weights.hex().substr(0, 12);
  return composed;
}

}  // namespace chorus::server
