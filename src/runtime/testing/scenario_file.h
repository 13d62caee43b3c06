// Text scenarios for tests: one command per line, '#' starts a comment.
#pragma once

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace chorus::testing {

struct ScenarioLine {
  int number = 0;
  std::string text;                           // without the comment
  std::string command;                        // first word
  std::vector<std::string> words;             // words after it without '='
  std::map<std::string, std::string> values;  // words of the form key=value
  std::string expected;                       // the words after "->"

  std::string value(const std::string& key, const std::string& fallback) const {
    const auto found = values.find(key);
    return found == values.end() ? fallback : found->second;
  }
  int numberOf(const std::string& key, int fallback) const {
    const auto found = values.find(key);
    return found == values.end() ? fallback : std::stoi(found->second);
  }
};

inline std::vector<ScenarioLine> readScenario(const std::filesystem::path& path) {
  std::ifstream file(path);
  if (!file) throw std::runtime_error("cannot read " + path.string());
  std::vector<ScenarioLine> lines;
  std::string raw;
  for (int number = 1; std::getline(file, raw); ++number) {
    raw = raw.substr(0, raw.find('#'));
    ScenarioLine line;
    line.number = number;
    const auto arrow = raw.find("->");
    std::istringstream before(raw.substr(0, arrow));
    if (arrow != std::string::npos) {
      std::istringstream after(raw.substr(arrow + 2));
      for (std::string word; after >> word;) line.expected += (line.expected.empty() ? "" : " ") + word;
    }
    for (std::string word; before >> word;) {
      const auto equals = word.find('=');
      if (line.command.empty())
        line.command = word;
      else if (equals == std::string::npos)
        line.words.push_back(word);
      else
        line.values[word.substr(0, equals)] = word.substr(equals + 1);
    }
    line.text = raw;
    if (!line.command.empty()) lines.push_back(std::move(line));
  }
  return lines;
}

inline std::vector<std::filesystem::path> scenarioFiles(const std::filesystem::path& dir) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(dir)) {
    if (entry.path().extension() == ".txt") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace chorus::testing
