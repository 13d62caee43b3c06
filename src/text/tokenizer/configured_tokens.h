// The added tokens that the files beside a tokenizer name: tokenizer_config.json and the older special_tokens_map.json
// and added_tokens.json. The rules are those of transformers.
#pragma once

#include <string>
#include <string_view>

#include "base/json.h"

namespace chorus {

// A file beside the tokenizer. `text` is empty and `json` null if it does not exist.
struct TokenizerConfigFile {
  std::string_view text;
  std::string path;  // for errors
  Json json;
};

// Enters the values of special_tokens_map.json into config, over its own. As in transformers, a config with
// added_tokens_decoder ignores the older files. Throws Error that names the file.
void addSpecialTokensMap(const TokenizerConfigFile& map, Json& config);

// Both are used if a tokenizer is imported from other files than a tokenizer.json. addAddedTokens enters the tokens of
// added_tokens.json into config as its added_tokens_decoder, unless it has one; it throws Error that names the file.
// makeNamedTokensSpecial makes the tokens of the added_tokens_decoder special that config names elsewhere. Call it
// after the import, which enters the names of the tokenizer's class into config.
void addAddedTokens(const TokenizerConfigFile& added, Json& config);
void makeNamedTokensSpecial(Json& config);

// Appends the tokens of the files to the list added_tokens of `tokenizer`, a tokenizer.json. The new items have no
// "id": a token that the tokenizer has gets the item's properties, another one gets the next id. An id in these
// files only decides the order. Sets `config["NAME_token"]` for special tokens that `config` names elsewhere, such as
// in an extra_special_tokens object, and removes added_tokens_decoder from `config`.
//
// config: tokenizer_config.json before addSpecialTokensMap, which this function calls. Throws Error that names the
// file. Takes time and memory in proportion to the files, but for sorting.
void addConfiguredTokens(const TokenizerConfigFile& config_file, const TokenizerConfigFile& map,
                         const TokenizerConfigFile& added, Json& tokenizer, Json& config);

}  // namespace chorus
