#include "formats/nemo_layout.h"

#include <charconv>
#include <map>
#include <optional>
#include <utility>

#include "base/error.h"
#include "formats/yaml.h"

namespace chorus {
namespace {

constexpr std::string_view kConfig = "model_config.yaml";
constexpr std::string_view kCheckpoint = "model_weights.ckpt";
constexpr std::string_view kDistributed = "model_weights/";
constexpr int32_t kMaxRanks = 4096;

struct RankOf {
  enum class Kind { kSingle, kTensor, kTensorAndPipeline } kind;
  int32_t tp = 0, pp = 0;
};

// The number at the beginning of `text`, which is taken off.
std::optional<int32_t> takeNumber(std::string_view& text) {
  const size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
  const std::string_view number = text.substr(0, digits);
  int32_t value = 0;
  if (digits == 0 || std::from_chars(number.begin(), number.end(), value).ec != std::errc()) return std::nullopt;
  text.remove_prefix(digits);
  return value;
}
bool takePrefix(std::string_view& text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  return true;
}

// The rank of a checkpoint by its name below the root; nullopt for other files.
std::optional<RankOf> rankOf(std::string_view name) {
  if (name == kCheckpoint) return RankOf{RankOf::Kind::kSingle};
  if (!name.ends_with(kCheckpoint)) return std::nullopt;
  name.remove_suffix(kCheckpoint.size());
  RankOf rank{RankOf::Kind::kTensor};
  if (takePrefix(name, "mp_rank_")) {
    const auto tp = takeNumber(name);
    if (!tp || name != "/") return std::nullopt;
    rank.tp = *tp;
    return rank;
  }
  if (!takePrefix(name, "tp_rank_")) return std::nullopt;
  const auto tp = takeNumber(name);
  if (!tp || !takePrefix(name, "_pp_rank_")) return std::nullopt;
  const auto pp = takeNumber(name);
  if (!pp || name != "/") return std::nullopt;
  return RankOf{RankOf::Kind::kTensorAndPipeline, *tp, *pp};
}

std::string rootOf(std::span<const std::string> names, std::string_view source) {
  std::optional<std::string> root;
  for (const std::string& name : names) {
    if (!name.ends_with(kConfig)) continue;
    std::string before = name.substr(0, name.size() - kConfig.size());
    if (!before.empty() && !before.ends_with('/')) continue;
    if (root) fail(ErrorCode::kCorrupt, "{}: it holds several {}", source, kConfig);
    root = std::move(before);
  }
  if (!root) fail(ErrorCode::kCorrupt, "{}: it holds no {}, so it is no NeMo model or adapter", source, kConfig);
  return *root;
}

[[noreturn]] void refuseWithoutCheckpoint(std::span<const std::string> names, const std::string& root,
                                          std::string_view source) {
  std::string_view kind;
  for (const std::string& name : names) {
    std::string_view below = name;
    if (!takePrefix(below, root) || !takePrefix(below, kDistributed)) continue;
    if (below.ends_with(".distcp")) kind = "torch_dist";
    if (below.ends_with(".zarray") || below.ends_with(".zgroup")) kind = "zarr";
    if (kind.empty() && (below == "metadata.json" || below == "common.pt")) kind = "torch_dist or zarr";
  }
  if (kind.empty()) fail(ErrorCode::kNotFound, "{}: it holds no {}", source, kCheckpoint);
  fail(ErrorCode::kUnsupported,
       "{}: its weights are a distributed checkpoint ({}), which is not supported; save it with NeMo as a single "
       "{} (dist_ckpt_format empty), or export it to Hugging Face's format",
       source, kind, kCheckpoint);
}

void checkRanks(const Json& config, const char* key, int32_t found, std::string_view source) {
  const auto said = jsonGetOr<int64_t>(config, key, found, source);
  if (said == found) return;
  fail(ErrorCode::kCorrupt, "{}: '{}' is {}, but there are checkpoints of {} such rank(s)", source, key, said, found);
}

}  // namespace

NemoLayout nemoLayout(std::span<const std::string> names, std::string_view source) {
  const std::string root = rootOf(names, source);
  std::map<std::pair<int32_t, int32_t>, std::string> ranks;  // (pp, tp) -> name
  std::optional<RankOf::Kind> kind;
  NemoLayout layout;
  layout.config = root + std::string(kConfig);
  for (const std::string& name : names) {
    std::string_view below = name;
    const auto rank = takePrefix(below, root) ? rankOf(below) : std::nullopt;
    if (!rank) continue;
    if (kind && *kind != rank->kind) {
      fail(ErrorCode::kCorrupt, "{}: it holds checkpoints of several kinds, {} and {}", source, ranks.begin()->second,
           name);
    }
    kind = rank->kind;
    if (rank->tp >= kMaxRanks || rank->pp >= kMaxRanks) {
      fail(ErrorCode::kCorrupt, "{}: {} is of a rank beyond {}", source, name, kMaxRanks);
    }
    if (!ranks.emplace(std::pair(rank->pp, rank->tp), name).second) {
      fail(ErrorCode::kCorrupt, "{}: {} is of the same rank as another checkpoint", source, name);
    }
    if (ranks.size() > static_cast<size_t>(kMaxRanks)) {
      fail(ErrorCode::kCorrupt, "{}: it holds checkpoints of more than {} ranks", source, kMaxRanks);
    }
    layout.tp_size = std::max(layout.tp_size, rank->tp + 1);
    layout.pp_size = std::max(layout.pp_size, rank->pp + 1);
  }
  if (ranks.empty()) refuseWithoutCheckpoint(names, root, source);
  for (int32_t pp = 0; pp < layout.pp_size; ++pp) {
    for (int32_t tp = 0; tp < layout.tp_size; ++tp) {
      const auto found = ranks.find({pp, tp});
      if (found == ranks.end()) {
        fail(ErrorCode::kCorrupt, "{}: the checkpoint of tensor-parallel rank {} and pipeline rank {} is missing",
             source, tp, pp);
      }
      layout.checkpoints.push_back(found->second);
    }
  }
  return layout;
}

Json parseNemoConfig(std::string_view text, const NemoLayout& layout, std::string_view source) {
  Json config = parseYaml(text, source);
  if (!config.is_object()) fail(ErrorCode::kCorrupt, "{}: expected a map of fields", source);
  checkRanks(config, "tensor_model_parallel_size", layout.tp_size, source);
  checkRanks(config, "pipeline_model_parallel_size", layout.pp_size, source);
  return config;
}

}  // namespace chorus
