// Reads the texts of an evaluation and their references from a local data file.
#pragma once

#include <deque>
#include <filesystem>
#include <string>
#include <string_view>

namespace chorus {

// Names of the two columns (CSV) or keys (JSON) that are read.
struct ArticleColumns {
  std::string_view input, reference;  // may be equal
};
struct Article {
  std::string text, reference;  // UTF-8
};
using Articles = std::deque<Article>;  // not a vector, whose growth would need three times the memory of short records

// Formats, by the file's name or its first character:
//   .csv         RFC 4180: comma, double quotes, the first record has the names of the columns, at most 1,000
//   [ ...        a JSON array of objects
//   otherwise    JSON lines: one object per line; empty lines are skipped
// Other columns are ignored. Throws Error that names file and record if a column is missing or no text, and if the file
// has no record, is damaged or larger than 1 GiB.
Articles readArticles(const std::filesystem::path& path, const ArticleColumns& columns);
// Like readArticles, from text in memory; `source` names it in errors.
Articles parseArticlesCsv(std::string_view text, const ArticleColumns& columns, std::string_view source);
Articles parseArticlesJson(std::string_view text, const ArticleColumns& columns, std::string_view source);

// The data file in a directory: SPLIT.jsonl, SPLIT.json or SPLIT.csv in `directory` itself, or in its subdirectory
// `dataset`. A path to a file is returned as it is. Throws Error that names what was searched.
std::filesystem::path findArticleFile(const std::filesystem::path& directory, std::string_view dataset,
                                      std::string_view split);

}  // namespace chorus
