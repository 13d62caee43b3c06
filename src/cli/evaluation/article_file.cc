#include "cli/evaluation/article_file.h"

#include <algorithm>
#include <cstddef>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/utf8.h"

namespace chorus {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostBytes = size_t{1} << 30, kMostColumns = 1000;
constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

void requireRecords(const Articles& articles, std::string_view source) {
  if (articles.empty()) fail(ErrorCode::kCorrupt, "{}: it has no record", source);
}

// Splits CSV into records of fields.
class CsvReader {
 public:
  CsvReader(std::string_view text, std::string_view source) : text_(text), source_(source) {}

  size_t record() const { return record_; }

  // Reads the next record that is not an empty line; returns whether there is one.
  bool read(std::vector<std::string>& fields) {
    while (at_ < text_.size() && endLine()) {
    }
    if (at_ == text_.size()) return false;
    ++record_;
    fields.clear();
    do {
      if (fields.size() == kMostColumns) {
        fail(ErrorCode::kCorrupt, "{}: record {} has more than {} fields", source_, record_, kMostColumns);
      }
      fields.push_back(text_.substr(at_).starts_with('"') ? quoted() : plain());
      if (!isUtf8(fields.back())) fail(ErrorCode::kCorrupt, "{}: record {} is not UTF-8", source_, record_);
    } while (take(','));
    if (at_ < text_.size() && !endLine()) {
      fail(ErrorCode::kCorrupt, "{}: record {} has text after a closing quote", source_, record_);
    }
    return true;
  }

 private:
  bool take(char expected) {
    if (at_ == text_.size() || text_[at_] != expected) return false;
    ++at_;
    return true;
  }
  // Takes the end of a line: a line feed, after a carriage return or not.
  bool endLine() {
    if (text_.substr(at_).starts_with("\r\n")) ++at_;
    return take('\n');
  }

  std::string plain() {
    const std::string_view rest = text_.substr(at_);
    size_t size = std::min(rest.find_first_of(",\n"), rest.size());
    at_ += size;
    if (size > 0 && at_ < text_.size() && text_[at_] == '\n' && rest[size - 1] == '\r') --size;
    return std::string(rest.substr(0, size));
  }

  std::string quoted() {
    std::string field;
    ++at_;
    do {
      const size_t end = text_.find('"', at_);
      if (end == std::string_view::npos) {
        fail(ErrorCode::kCorrupt, "{}: record {} has a quote without an end", source_, record_);
      }
      field.append(text_.substr(at_, end - at_));
      at_ = end + 1;
    } while (take('"') && (field += '"', true));
    return field;
  }

  std::string_view text_, source_;
  size_t at_ = 0, record_ = 0;
};

std::string textOf(const Json& object, std::string_view key, std::string_view source, size_t record) {
  const auto found = object.is_object() ? object.find(std::string(key)) : object.end();
  if (!object.is_object()) fail(ErrorCode::kCorrupt, "{}: record {} is not a JSON object", source, record);
  if (found == object.end()) fail(ErrorCode::kCorrupt, "{}: record {} has no '{}'", source, record, key);
  if (!found->is_string()) fail(ErrorCode::kCorrupt, "{}: '{}' of record {} is not a text", source, key, record);
  return found->get<std::string>();
}

void addRecord(const Json& object, const ArticleColumns& columns, std::string_view source, Articles& articles) {
  const size_t record = articles.size() + 1;
  articles.push_back(
      {textOf(object, columns.input, source, record), textOf(object, columns.reference, source, record)});
}
}  // namespace

Articles parseArticlesCsv(std::string_view text, const ArticleColumns& columns, std::string_view source) {
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  CsvReader reader(text, source);
  std::vector<std::string> fields;
  reader.read(fields);
  const auto indexOf = [&](std::string_view name) {
    const auto found = std::find(fields.begin(), fields.end(), name);
    if (found == fields.end()) fail(ErrorCode::kCorrupt, "{}: the first record has no column '{}'", source, name);
    return static_cast<size_t>(found - fields.begin());
  };
  const size_t input = indexOf(columns.input), reference = indexOf(columns.reference), count = fields.size();
  Articles articles;
  while (reader.read(fields)) {
    if (fields.size() != count) {
      fail(ErrorCode::kCorrupt, "{}: record {} has {} fields, the first has {}", source, reader.record(), fields.size(),
           count);
    }
    articles.push_back({fields[input], fields[reference]});
  }
  requireRecords(articles, source);
  return articles;
}

Articles parseArticlesJson(std::string_view text, const ArticleColumns& columns, std::string_view source) {
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  Articles articles;
  const size_t begin = text.find_first_not_of(" \t\r\n");
  if (begin != std::string_view::npos && text[begin] == '[') {
    const Json list = parseJson(text, source, {.max_bytes = kMostBytes});
    for (const Json& object : list) addRecord(object, columns, source, articles);
  } else {
    while (!text.empty()) {
      const size_t end = std::min(text.find('\n'), text.size());
      const std::string_view line = text.substr(0, end);
      text.remove_prefix(std::min(end + 1, text.size()));
      if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
      const std::string record = fmt::format("{}: record {}", source, articles.size() + 1);
      addRecord(parseJson(line, record, {.max_bytes = kMostBytes}), columns, source, articles);
    }
  }
  requireRecords(articles, source);
  return articles;
}

Articles readArticles(const fs::path& path, const ArticleColumns& columns) {
  const std::string text = readFile(path, kMostBytes);
  if (path.extension() == ".csv") return parseArticlesCsv(text, columns, path.string());
  return parseArticlesJson(text, columns, path.string());
}

fs::path findArticleFile(const fs::path& directory, std::string_view dataset, std::string_view split) {
  if (!fs::is_directory(directory)) return directory;
  for (const fs::path& folder : {directory, directory / dataset}) {
    for (const char* extension : {".jsonl", ".json", ".csv"}) {
      if (const fs::path file = folder / (std::string(split) + extension); fs::is_regular_file(file)) return file;
    }
  }
  fail(ErrorCode::kNotFound,
       "--dataset_dir {}: neither there nor in {} is there a {}.jsonl, .json or .csv; other formats, such as Parquet, "
       "are "
       "not read: export them with the to_json of the package datasets",
       directory.string(), dataset, split);
}

}  // namespace chorus
