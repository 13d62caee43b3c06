// Models of several kinds of input, such as text and images, of which Chorus serves the text model. Their source config
// contains the text model's, and their tensors contain the text model's under longer names.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "models/architecture.h"
#include "models/weight_rows.h"

namespace chorus {

struct MultimodalModel {
  std::string name;                 // Hugging Face's class name
  std::vector<std::string> models;  // Architecture::models
  // The architectures that the text model may have, by the `model_type` of its config. Without a model_type, it is the
  // first one.
  std::vector<std::pair<std::string, Architecture>> texts;
  // The names of the text model's tensors in files and in adapters. The last naming may be empty, for the text model's
  // own names, so that its adapters serve here too.
  std::vector<Naming> namings;
  // Modules beside the text model, such as "visual": their tensors are left out, also below "model.".
  std::vector<std::string> other_parts;
  // Keys of the source config that describe these parts or the tokens that stand for their inputs.
  std::vector<std::string_view> other_keys;
  // Whether old files have the text model's keys at the top level instead of in `text_config`.
  bool may_be_flat = false;
  // Whether embeddings are also tied if only `text_config` says so.
  bool ties_in_text = false;
  // Whether the RoPE parameters may have sections of each head for time, height and width. The three positions of a
  // token of text are equal, so that this is ordinary RoPE.
  bool has_rope_sections = false;
  // Values of keys that the text model's config lacks, where they differ from its architecture's.
  Json text_defaults = Json::object();
};

// The architecture of the model, whose checkpoints have the text model's tensors only. Throws Error for a source config
// whose text model has none of these architectures.
Architecture textModelOf(MultimodalModel model);

}  // namespace chorus
