#include "lora/peft_replacements.h"

#include <algorithm>
#include <numeric>

#include "base/background_throttle.h"
#include "base/error.h"
#include "checkpoint/names.h"
#include "checkpoint/source_values.h"
#include "lora/adapter_values.h"
#include "lora/module_spellings.h"

namespace chorus {
namespace {

constexpr std::string_view kWeight = ".weight", kBias = ".bias";

bool endsWithName(std::string_view module, std::string_view end) { return !end.empty() && module.ends_with(end); }

// The sources in Hugging Face's format, because PEFT uses the names of Hugging Face's files.
std::vector<const WeightSource*> sourcesOf(const WeightRow& row) { return sourcesOf(row, SourceFormat::kHuggingFace); }

// Whether readRows() reads the row's values from an adapter. The embedding, the output head and its bias may have more
// rows in the adapter than in the base, so readVocabulary() reads them; adapters cannot replace other tables, nor
// experts.
bool isReplaceable(const WeightRow& row) {
  return row.experts == 0 && row.slot.kind != SlotKind::kTable && row.slot.weight() != slotOf(LinearId::kHead);
}

// name: of the embedding or the output head; empty if the model has none.
bool isSpelling(std::string_view module, std::string_view name) {
  return !name.empty() && (hasName(module, name) || areSpellings(withoutModelNames(module), withoutModelNames(name)));
}
}  // namespace

BaseNames::BaseNames(const ModelConfig& config, const WeightTable& table) {
  const auto read = [&](const WeightSlot& slot, std::string& module, SourceTransform& transform) {
    const WeightRow* row = findRow(table, slot);
    if (row == nullptr) return;
    const WeightSource& source = *sourcesOf(*row).front();
    module = moduleOf(source.name);
    transform = source.transform;
  };
  read(slotOf(TableId::kTokens), embedding, embedding_transform);
  if (config.tie_word_embeddings) {
    head = "lm_head";  // the name in every model of transformers that ties it
    head_transform = embedding_transform;
  } else {
    read(slotOf(LinearId::kHead), head, head_transform);
  }
}

bool BaseNames::isEmbedding(std::string_view module) const { return isSpelling(module, embedding); }
bool BaseNames::isHead(std::string_view module) const { return isSpelling(module, head); }

TensorView sourceRows(const TensorView& tensor, const SourceRows& rows, int64_t count, AdapterBuilder& builder) {
  const size_t row_bytes = static_cast<size_t>(tensor.shape.size() > 1 ? tensor.shape[1] : 1) * dtypeSize(tensor.dtype);
  TensorView part = {tensor.dtype, tensor.shape, {}};
  part.shape[0] = count;
  if (builder.takesShapesOnly()) {
    part.bytes = tensor.bytes.first(static_cast<size_t>(count) * row_bytes);
    return part;
  }
  if (rows.block == 0) {
    part.bytes =
        tensor.bytes.subspan(static_cast<size_t>(rows.begin) * row_bytes, static_cast<size_t>(count) * row_bytes);
    return part;
  }
  const auto gathered = std::make_shared<std::vector<std::byte>>();
  gathered->reserve(static_cast<size_t>(count) * row_bytes);
  rows.forEachRun(0, count, [&](int64_t row, int64_t run) {
    const auto bytes = tensor.bytes.subspan(static_cast<size_t>(row) * row_bytes, static_cast<size_t>(run) * row_bytes);
    gathered->insert(gathered->end(), bytes.begin(), bytes.end());
    chargeThrottle(builder.throttle(), bytes.size());
  });
  part.bytes = *gathered;
  builder.keep(gathered);
  return part;
}

TensorView sourceValues(const TensorView& tensor, const WeightSource& source, AdapterBuilder& builder) {
  const SourceTransform& transform = source.transform;
  if (!transform.transposed && !transform.changesValues()) {
    return sourceRows(tensor, source.in_source, source.rows, builder);
  }
  const int64_t cols = sourceColumns(tensor, transform);
  if (builder.takesShapesOnly()) return {tensor.dtype, {source.rows, cols}, {}};
  const size_t row_bytes = static_cast<size_t>(cols) * dtypeSize(tensor.dtype);
  const auto gathered = std::make_shared<std::vector<std::byte>>(static_cast<size_t>(source.rows) * row_bytes);
  std::byte* out = gathered->data();
  source.in_source.forEachRun(0, source.rows, [&](int64_t row, int64_t run) {
    inPieces(run, row_bytes, builder.throttle(), [&](int64_t begin, int64_t count) {
      gatherSource(tensor, transform, row + begin, count, 0, cols, out);
      out += static_cast<size_t>(count) * row_bytes;
    });
  });
  TensorView values = {tensor.dtype, {source.rows, cols}, *gathered};
  if (!transform.changesValues()) {
    builder.keep(gathered);
    return values;
  }
  const auto changed = std::make_shared<std::vector<float>>(toFloats(values, builder.throttle()));
  inPieces(std::ssize(*changed), sizeof(float), builder.throttle(), [&](int64_t begin, int64_t count) {
    changeValues(transform, std::span(*changed).subspan(static_cast<size_t>(begin), static_cast<size_t>(count)));
  });
  builder.keep(changed);
  return {DType::kFloat32, values.shape, std::as_bytes(std::span(*changed))};
}

PeftReplacements::PeftReplacements(const PeftConfig& config, const TensorFile& weights, std::string_view config_source,
                                   const AdapterTarget& target)
    : config_(config),
      weights_(weights),
      config_source_(config_source),
      target_(target),
      names_(target.config, target.table),
      layers_(layersName(target.table)),
      input_vocabulary_(target.config.vocab_size),
      head_vocabulary_(target.config.vocab_size) {}

void PeftReplacements::refuse(const std::string& tensor, std::string_view reason) const {
  fail(ErrorCode::kCorrupt, "{}: tensor '{}' {}", weights_.source(), tensor, reason);
}

void PeftReplacements::refuseConfig(std::string_view field, std::string_view reason) const {
  fail(ErrorCode::kInvalidArgument, "{}: '{}' {}", config_source_, field, reason);
}

std::vector<PeftReplacements::Place> PeftReplacements::placesOf(const std::string& source_name) const {
  std::vector<Place> places;
  const auto in_layer = layerModule(source_name, layers_);
  for (const WeightRow& row : target_.table) {
    if (!isReplaceable(row)) continue;
    for (const WeightSource* source : sourcesOf(row)) {
      // Spellings that differ in the names of models only are the same name here.
      const bool is_spelling = std::ranges::any_of(places, [&](const Place& place) {
        return place.row == &row && place.source->row_begin == source->row_begin;
      });
      if (is_spelling) continue;
      if (row.stage == Stage::kEveryLayer) {
        const bool found = in_layer && in_layer->layer < target_.config.num_hidden_layers &&
                           row.isInLayer(in_layer->layer) &&
                           hasName(source_name, layerName(source->name, in_layer->layer));
        if (found) places.push_back({&row, source, in_layer->layer});
      } else if (hasName(source_name, source->name)) {
        places.push_back({&row, source, kOutsideLayers});
      }
    }
  }
  return places;
}

// Refuses a tensor that the configuration does not ask for. PEFT would load some of these tensors into the base model,
// where they would affect all adapters.
void PeftReplacements::checkAsked(const std::string& name, const PeftKey& key, bool is_bias) const {
  if (config_.modules.saves(key.module) && !key.wrapped) return;
  if (is_bias) {
    if (config_.bias == PeftBias::kAll || (config_.bias == PeftBias::kLoraOnly && key.wrapped)) return;
    refuse(name, fmt::format("is a bias of the base model, which {} does not ask for (bias, modules_to_save)",
                             config_source_));
  }
  refuse(name, fmt::format("is a weight of the base model that {} does not list in modules_to_save", config_source_));
}

bool PeftReplacements::hasHeadBias() const { return findRow(target_.table, slotOf(LinearId::kHead).bias()) != nullptr; }

std::string* PeftReplacements::tensorFor(const PeftKey& key) {
  const bool embedding = names_.isEmbedding(key.module);
  const bool head = names_.isHead(key.module);
  if (key.part == PeftPart::kTokens) {
    return embedding || head ? &tokens_[embedding ? names_.embedding : names_.head] : nullptr;
  }
  if (head && key.tensor == "bias") return hasHeadBias() ? &head_bias_ : nullptr;
  if (embedding || head) return key.tensor == "weight" ? &(embedding ? embedding_ : head_) : nullptr;
  const std::vector<Place> places = placesOf(key.module + "." + key.tensor);
  if (places.empty()) return nullptr;
  return &rows_[layerName(places.front().source->name, places.front().layer)];
}

bool PeftReplacements::collect(const std::string& name, const PeftKey& key) {
  const bool in_vocabulary = names_.isEmbedding(key.module) || names_.isHead(key.module);
  if (key.part != PeftPart::kTokens && !in_vocabulary) {
    const std::vector<Place> places = placesOf(key.module + "." + key.tensor);
    if (places.empty()) return false;
    checkAsked(name, key, places.front().row->slot.isBias());
  }
  std::string* slot = tensorFor(key);
  if (slot == nullptr) return false;
  if (key.part == PeftPart::kSaved) {
    // PEFT writes one for each adapter that wrapped the module. A name costs a search, and a tenant may write many.
    constexpr int kMostForOne = 64;
    if (++saved_for_[slot] > kMostForOne)
      refuse(name, fmt::format("is one of more than {} for the same weights", kMostForOne));
    saved_.emplace_back(name, key);
    return true;
  }
  if (!slot->empty()) refuse(name, fmt::format("is for the same weights as '{}'; remove one of the two", *slot));
  *slot = name;
  return true;
}

void PeftReplacements::takeSaved(AdapterBuilder& builder) {
  for (const auto& [name, key] : saved_) {
    std::string& slot = *tensorFor(key);
    if (slot.empty()) {
      slot = name;
    } else if (!sameValues(*weights_.find(slot), *weights_.find(name), builder)) {
      refuse(name, fmt::format("is for the same weights as '{}'; remove one of the two", slot));
    }
  }
}

void PeftReplacements::checkExpertsAreNotSaved(const WeightRow& row) const {
  for (const WeightSource* source : sourcesOf(row)) {
    for (int32_t layer = 0; layer < target_.config.num_hidden_layers; ++layer) {
      const std::string name = expertName(layerName(source->name, layer), 0);
      if (!row.isInLayer(layer) || !config_.modules.saves(moduleOf(name))) continue;
      fail(ErrorCode::kUnsupported, "{}: modules_to_save lists '{}', but adapters cannot replace weights of experts",
           config_source_, moduleOf(name));
    }
  }
}

void PeftReplacements::checkSavedAreThere() const {
  if (config_.modules.savesAll()) return;
  for (const WeightRow& row : target_.table) {
    if (row.experts > 0) checkExpertsAreNotSaved(row);
    if (!isReplaceable(row)) continue;
    const int32_t layers = row.stage == Stage::kEveryLayer ? target_.config.num_hidden_layers : 1;
    for (const WeightSource* source : sourcesOf(row)) {
      for (int32_t layer = 0; layer < layers; ++layer) {
        const std::string name = layerName(source->name, layer);
        if (!row.isInLayer(layer) || !config_.modules.saves(moduleOf(name))) continue;
        const bool is_there = std::ranges::any_of(sourcesOf(row), [&](const WeightSource* spelling) {
          return spelling->row_begin == source->row_begin && rows_.contains(layerName(spelling->name, layer));
        });
        if (is_there) continue;
        fail(ErrorCode::kCorrupt, "{}: no tensor of '{}', which {} lists in modules_to_save", weights_.source(), name,
             config_source_);
      }
    }
  }
  const auto checkSaved = [&](const std::string& module, std::string_view field, const std::string& tensor) {
    if (module.empty() || !tensor.empty() || !config_.modules.saves(module)) return;
    fail(ErrorCode::kCorrupt, "{}: no tensor of '{}{}', which {} lists in modules_to_save", weights_.source(), module,
         field, config_source_);
  };
  checkSaved(names_.embedding, kWeight, embedding_);
  checkSaved(names_.head, kWeight, head_);
  if (hasHeadBias()) checkSaved(names_.head, kBias, head_bias_);
}

void PeftReplacements::readRows(AdapterBuilder& builder) const {
  for (const auto& [source_name, tensor] : rows_) {
    for (const Place& place : placesOf(source_name)) {
      WeightSource source = *place.source;
      // mlx-lm keeps every linear as [out, in].
      if (config_.mlx) source.transform.transposed = false;
      const TensorView& values = checkedTensor(weights_, tensor, sourceShape(*place.row, source),
                                               "the adapter is of another model", target_.throttle);
      const AdapterWeight weight = {.slot = place.row->slot,
                                    .layer = place.layer,
                                    .row_begin = place.source->row_begin,
                                    .rows = place.source->rows,
                                    .cols = place.row->shape.size() > 1 ? place.row->shape[1] : 1};
      builder.add(weight, sourceValues(values, source, builder));
    }
  }
}

// Reads the embedding and the output head. In a model that ties them, a tensor that PEFT loads into the base's tied
// weight replaces both.
void PeftReplacements::readVocabulary(AdapterBuilder& builder) {
  if (target_.config.tie_word_embeddings) {
    const bool embedding_is_saved = config_.modules.saves(names_.embedding) && !config_.modules.savesAll();
    const bool head_is_saved = config_.modules.saves(names_.head) && !config_.modules.savesAll();
    if (head_.empty() && (!embedding_is_saved || config_.ensure_weight_tying)) {
      head_ = embedding_;
    } else if (embedding_.empty() && !head_is_saved) {
      embedding_ = head_;
    }
  }
  const auto read = [&](const std::string& tensor, const WeightSlot& slot, const SourceTransform& transform,
                        int64_t& vocabulary) {
    if (tensor.empty()) return;
    const int64_t hidden = target_.config.embedding_size;
    const TensorView& found = *weights_.find(tensor);
    const int64_t model = target_.config.vocab_size;
    const int64_t rows = found.shape.size() == 2 ? found.shape[0] : model;
    if (rows < model || rows > INT32_MAX) {
      refuse(tensor,
             fmt::format("has shape {}, the model has {} tokens; fewer are not served", shapeText(found.shape), model));
    }
    vocabulary = rows;
    const TensorView& values =
        checkedTensor(weights_, tensor, {rows, hidden}, "the adapter is of another model", target_.throttle);
    const WeightSource source = {.name = tensor, .rows = rows, .transform = transform};
    builder.add({.slot = slot, .rows = rows, .cols = hidden}, sourceValues(values, source, builder));
  };
  read(embedding_, slotOf(TableId::kTokens), names_.embedding_transform, input_vocabulary_);
  read(head_, slotOf(LinearId::kHead), names_.head_transform, head_vocabulary_);
  if (head_bias_.empty()) return;
  const TensorView& bias =
      checkedTensor(weights_, head_bias_, {head_vocabulary_}, "the adapter is of another model", target_.throttle);
  builder.add({.slot = slotOf(LinearId::kHead).bias(), .rows = head_vocabulary_}, bias);
}

AdapterTokens PeftReplacements::tokenRows(const PeftTokens& tokens, const std::string& tensor, int64_t vocabulary,
                                          const SourceTransform& transform) const {
  const int64_t hidden = target_.config.embedding_size;
  const int64_t count = std::ssize(tokens.tokens);
  const TensorView& values = checkedTensor(weights_, tensor, {count, hidden},
                                           "it is of other tokens than trainable_token_indices", target_.throttle);
  std::vector<float> rows;
  if (weights_.hasValues()) rows = toFloats(values, target_.throttle);
  changeValues(transform, rows);
  std::vector<size_t> order(tokens.tokens.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t x, size_t y) { return tokens.tokens[x] < tokens.tokens[y]; });
  AdapterTokens sorted{.cols = hidden};
  for (const size_t at : order) {
    if (tokens.tokens[at] >= vocabulary) {
      refuseConfig("trainable_token_indices",
                   fmt::format("names token {}, the model has {}", tokens.tokens[at], vocabulary));
    }
    sorted.tokens.push_back(static_cast<int32_t>(tokens.tokens[at]));
    if (rows.empty()) continue;
    const auto row = rows.begin() + static_cast<int64_t>(at) * hidden;
    sorted.rows.insert(sorted.rows.end(), row, row + hidden);
  }
  return sorted;
}

PeftReplacements::TrainedTokens PeftReplacements::trainedTokens(const std::set<std::string>& adapted) const {
  TrainedTokens trained;
  for (const PeftTokens& tokens : config_.trainable_tokens) {
    const std::string module = tokens.module.value_or(names_.embedding);
    const bool embedding = endsWithName(names_.embedding, module) || names_.isEmbedding(module);
    if (!embedding && !endsWithName(names_.head, module) && !names_.isHead(module)) {
      refuseConfig("trainable_token_indices",
                   fmt::format("names '{}': it is read for {} and {}", module, names_.embedding, names_.head));
    }
    const PeftTokens*& slot = embedding ? trained.embedding : trained.head;
    if (slot != nullptr) refuseConfig("trainable_token_indices", fmt::format("names '{}' twice", module));
    slot = &tokens;
  }
  bool tied = target_.config.tie_word_embeddings && trained.embedding != nullptr;
  if (tied && trained.head != nullptr && trained.head->tokens != trained.embedding->tokens) {
    if (config_.ensure_weight_tying) {
      refuseConfig("trainable_token_indices", "names other tokens for two modules that ensure_weight_tying ties");
    }
    tied = false;
  }
  if (tied && config_.modules.saves(names_.head)) {
    refuseConfig("trainable_token_indices",
                 fmt::format("is of an embedding that the model ties to {}, which modules_to_save names", names_.head));
  }
  if (tied && config_.use_dora && adapted.contains(names_.head)) {
    refuseConfig("trainable_token_indices",
                 fmt::format("cannot be combined with DoRA on {}, which the model ties to the embedding", names_.head));
  }
  trained.tied = tied;
  return trained;
}

int64_t PeftReplacements::withAdded(const PeftTokens* tokens) const {
  int64_t vocabulary = target_.config.vocab_size;
  if (tokens == nullptr) return vocabulary;
  const std::set<int64_t> covered(tokens->tokens.begin(), tokens->tokens.end());
  while (covered.contains(vocabulary)) ++vocabulary;
  return vocabulary;
}

// Without a saved table, the rows of trained tokens can include all added tokens.
void PeftReplacements::readVocabularySizes(const TrainedTokens& trained, AdapterBuilder& builder) {
  if (embedding_.empty()) input_vocabulary_ = withAdded(trained.embedding);
  if (head_.empty()) head_vocabulary_ = withAdded(trained.tied ? trained.embedding : trained.head);
  if (head_vocabulary_ > input_vocabulary_) {
    const std::string sizes =
        fmt::format("rows for {} tokens, the embedding for {}", head_vocabulary_, input_vocabulary_);
    if (!head_.empty()) refuse(head_, "has " + sizes);
    refuseConfig("trainable_token_indices", fmt::format("gives {} {}", names_.head, sizes));
  }
  const int64_t model = target_.config.vocab_size;
  if (head_vocabulary_ != model) builder.adapter().vocab_size = head_vocabulary_;
  if (input_vocabulary_ != model) builder.adapter().input_vocab_size = input_vocabulary_;
}

void PeftReplacements::readTokens(const TrainedTokens& trained, const std::set<std::string>& adapted,
                                  AdapterBuilder& builder) const {
  const auto read = [&](const PeftTokens* tokens, const std::string& module, const SourceTransform& transform,
                        int64_t vocabulary) -> AdapterTokens {
    const auto tensor = tokens_.find(module);
    if (tokens == nullptr) {
      if (tensor != tokens_.end()) {
        refuse(tensor->second,
               fmt::format("is of trained tokens, though {} names none in trainable_token_indices", config_source_));
      }
      return {};
    }
    if (tensor == tokens_.end()) {
      fail(ErrorCode::kCorrupt,
           "{}: no tensor of the trained tokens of '{}', which {} names in trainable_token_indices", weights_.source(),
           module, config_source_);
    }
    if (config_.modules.saves(module) || adapted.contains(module)) {
      refuseConfig("trainable_token_indices",
                   fmt::format("names '{}', which is replaced or adapted as a whole too", module));
    }
    return tokenRows(*tokens, tensor->second, vocabulary, transform);
  };
  builder.adapter().embedding_tokens =
      read(trained.embedding, names_.embedding, names_.embedding_transform, input_vocabulary_);
  builder.adapter().head_tokens = trained.tied
                                      ? builder.adapter().embedding_tokens
                                      : read(trained.head, names_.head, names_.head_transform, head_vocabulary_);
  const AdapterTokens& head = builder.adapter().head_tokens;
  if (!head.empty() && head.tokens.back() >= head_vocabulary_) {
    refuseConfig("trainable_token_indices",
                 fmt::format("names token {}, the output head has {}", head.tokens.back(), head_vocabulary_));
  }
}

void PeftReplacements::read(const std::set<std::string>& adapted, AdapterBuilder& builder) {
  takeSaved(builder);
  checkSavedAreThere();
  readRows(builder);
  readVocabulary(builder);
  const TrainedTokens trained = trainedTokens(adapted);
  readVocabularySizes(trained, builder);
  readTokens(trained, adapted, builder);
}

}  // namespace chorus
