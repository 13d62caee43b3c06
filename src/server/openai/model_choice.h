// Which weights answer a request: the model that it names, or the base with several adapters together.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "server/model/model_catalog.h"
#include "server/openai/request_json.h"

namespace chorus::server {

// A member of a composition, as a request's "adapters" names it.
struct AdapterTerm {
  std::string name;
  float weight = 1.0f;
};

// The field "adapters": at most 32 objects of a name and a finite weight, no name twice. Empty where the field is
// absent. Throws ApiError with status 400 that names the field.
std::vector<AdapterTerm> parseAdapterTerms(const FieldReader& fields);

// The entry named `model`; with terms, which need the base model's name there, an entry of the base model that answers
// with the terms' adapters added to it, each times its weight, in their order. Throws ApiError: 404 for a name that is
// no model, 400 for a model that cannot be composed.
std::shared_ptr<const ServedModel> chooseModel(const ModelCatalog& models, const std::string& model,
                                               const std::vector<AdapterTerm>& terms);

}  // namespace chorus::server
