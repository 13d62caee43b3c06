// Files of the source tree that are part of the program; cmake/ChorusLayer.cmake (chorus_embed) makes their
// definitions.
#pragma once

namespace chorus {

extern const char kAnswerSchemas[];  // answers.json
extern const char kLicense[];        // LICENSE

}  // namespace chorus
