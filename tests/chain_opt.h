// An OPT model that answers every prompt with the same words, so that scores of its answers can be known.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace chorus::test {

// Writes a Hugging Face directory with the tokenizer of the demo: an OPT of 2 layers, 4 heads and 2,048 positions with
// random weights. Its embedding and its output head outweigh the layers: after a token of `words`, the next one is the
// likeliest; after the last one, the end token; after any other token, the first one. Each word, with the space before
// it, must be one token, and no two words may be equal.
void writeChainOpt(const std::vector<std::string>& words, const std::filesystem::path& directory);

}  // namespace chorus::test
