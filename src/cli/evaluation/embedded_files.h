// Files of the source tree that are part of the program; cmake/ChorusLayer.cmake (chorus_embed) makes their
// definitions.
#pragma once

namespace chorus {

extern const char kDefaultArticles[];    // examples/evaluation/articles.jsonl
extern const char kHuggingFaceScript[];  // src/cli/evaluation/hugging_face.py

}  // namespace chorus
