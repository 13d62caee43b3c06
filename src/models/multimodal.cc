#include "models/multimodal.h"

#include <utility>

#include "models/gemma.h"
#include "models/llama.h"
#include "models/ministral3.h"
#include "models/qwen2.h"
#include "models/qwen3.h"
#include "models/text_model.h"

namespace chorus {
namespace {

// Names below "model.language_model." are those of transformers from 4.52 on, in memory and in adapters. Most files
// have the older names.
const Naming kBelowModel = {{"model.", "model.language_model."}};
const Naming kWholeModel = {{"model.", "language_model.model."}, {"lm_head.", "language_model.lm_head."}};
const Naming kTextModel;

// A model in the manner of LLaVA: an image encoder and a projection beside a text model.
MultimodalModel llavaModel(std::string name, std::vector<std::string> published,
                           std::vector<std::pair<std::string, Architecture>> texts) {
  return {.name = std::move(name),
          .models = std::move(published),
          .texts = std::move(texts),
          .namings = {kBelowModel, kWholeModel, kTextModel},
          .other_parts = {"vision_tower", "multi_modal_projector"},
          .other_keys = {"vision_config", "image_token_index", "image_token_id"}};
}

MultimodalModel gemma3Model() {
  MultimodalModel model =
      llavaModel("Gemma3ForConditionalGeneration", {"Gemma 3"}, {{"gemma3_text", gemma3Architecture()}});
  model.other_keys.insert(model.other_keys.end(), {"boi_token_index", "eoi_token_index", "boi_token_id", "eoi_token_id",
                                                   "mm_tokens_per_image"});
  return model;
}

MultimodalModel mistral3Model() {
  MultimodalModel model = llavaModel("Mistral3ForConditionalGeneration", {"Mistral Small 3", "Ministral 3"},
                                     {{"mistral", mistralArchitecture()}, {"ministral3", ministral3Architecture()}});
  model.other_keys.insert(model.other_keys.end(), {"projector_hidden_act", "vision_feature_layer",
                                                   "multimodal_projector_bias", "spatial_merge_size"});
  return model;
}

MultimodalModel qwenModel(std::string name, std::string published, std::string text_type, Architecture text) {
  return {.name = std::move(name),
          .models = {std::move(published)},
          .texts = {{std::move(text_type), std::move(text)}},
          .namings = {kBelowModel, kTextModel},
          .other_parts = {"visual"},
          .other_keys = {"vision_config", "image_token_id", "video_token_id", "vision_start_token_id",
                         "vision_end_token_id", "vision_token_id"},
          .has_rope_sections = true};
}

// Qwen2-VL and Qwen2.5-VL, whose text models are equal.
MultimodalModel qwen2Model(std::string name, std::string published, std::string text_type) {
  MultimodalModel model = qwenModel(std::move(name), std::move(published), std::move(text_type), qwen2Architecture());
  model.may_be_flat = model.ties_in_text = true;
  model.text_defaults = {
      {"num_key_value_heads", 8}, {"max_window_layers", 80}, {"rms_norm_eps", 1e-5}, {"rope_theta", 1e6}};
  return model;
}

MultimodalModel qwen3Model() {
  MultimodalModel model =
      qwenModel("Qwen3VLForConditionalGeneration", "Qwen3-VL (dense)", "qwen3_vl_text", qwen3Architecture());
  model.text_defaults = {{"max_position_embeddings", 128000}, {"rope_theta", 5e5}};
  return model;
}
}  // namespace

std::vector<Architecture> multimodalArchitectures() {
  return {textModelOf(gemma3Model()), textModelOf(mistral3Model()),
          textModelOf(qwen2Model("Qwen2VLForConditionalGeneration", "Qwen2-VL", "qwen2_vl_text")),
          textModelOf(qwen2Model("Qwen2_5_VLForConditionalGeneration", "Qwen2.5-VL", "qwen2_5_vl_text")),
          textModelOf(qwen3Model())};
}

}  // namespace chorus
