// Chooses the weights for a request: the model that it names, or the base model with several adapters.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "server/access/model_view.h"
#include "server/openai/request_json.h"

namespace chorus::server {

// An entry of a request's "adapters": an adapter of the composition and its weight.
struct AdapterTerm {
  std::string name;
  float weight = 1.0f;
};

// Reads the field "adapters": at most 32 objects of a name and a finite weight, no name twice. Returns none if the
// field is absent. Throws ApiError with status 400 that names the field.
std::vector<AdapterTerm> parseAdapterTerms(const FieldReader& fields);

// Thrown for an adapter whose tokenizer files are not read yet: the request must be prepared again after
// ModelCatalog::waitForText.
struct TextPending {
  std::string adapter;
};

// Without terms, returns the entry named `model`. With terms, `model` must be the base model; returns an entry whose
// composition has the terms' adapters with their weights, in their order. Throws ApiError: 404 for an unknown name, 400
// if `model` cannot be composed or a term is not an adapter. Throws TextPending if an adapter's text is not read
// yet.
std::shared_ptr<const ServedModel> chooseModel(const ModelView& models, const std::string& model,
                                               const std::vector<AdapterTerm>& terms);

}  // namespace chorus::server
