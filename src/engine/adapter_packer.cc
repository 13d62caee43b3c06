#include "engine/adapter_packer.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <map>

#include "base/background_throttle.h"
#include "base/error.h"
#include "checkpoint/quantisation.h"
#include "checkpoint/shard.h"
#include "engine/adapter_values.h"
#include "engine/engine_layout.h"
#include "lora/adapter_builder.h"
#include "lora/module_ids.h"
#include "lora/shard.h"

namespace chorus {
namespace {

const std::byte* bytesOf(const std::vector<float>& values) { return reinterpret_cast<const std::byte*>(values.data()); }

// The runs of consecutive tokens, each as the index of its first token and the number of its tokens, at most `longest`.
std::vector<std::pair<size_t, size_t>> runsOf(const std::vector<int32_t>& tokens, size_t longest) {
  std::vector<std::pair<size_t, size_t>> runs;
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (i > 0 && tokens[i] == tokens[i - 1] + 1 && runs.back().second < longest) {
      ++runs.back().second;
    } else {
      runs.emplace_back(i, 1);
    }
  }
  return runs;
}

// Unpacks the first `count` rows to rows [count, in] and charges the throttle after each row.
void unpackRows(const WeightPacker& packer, const PackedWeight& weight, int64_t count, float* rows,
                BackgroundThrottle* throttle) {
  for (int64_t row = 0; row < count; ++row) {
    packer.unpackRow(weight, row, rows + row * weight.in);
    chargeThrottle(throttle, static_cast<size_t>(weight.in) * sizeof(float));
  }
}

}  // namespace

AdapterPacker::AdapterPacker(const ModelConfig& config, const WeightTable& table, const WeightPacker& packer,
                             int32_t rank, const WeightFormat& lora_format)
    : config_(config), table_(table), packer_(packer), rank_(rank), lora_format_(lora_format) {}

int32_t AdapterPacker::localLayer(int32_t layer) const {
  if (layer == kOutsideLayers) return layer;
  const Mapping& mapping = config_.mapping;
  return layer - stageLayers(config_.num_hidden_layers, mapping, mapping.ppRank(rank_)).begin;
}

AdapterPacker::Place AdapterPacker::placeOf(const WeightRow& row, int32_t layer, int64_t rank_row_begin) const {
  const Mapping& mapping = config_.mapping;
  return {.layer = localLayer(layer),
          .linear = row.slot.linear(),
          .out_begin = rankSlotBegin(table_, row, mapping.tp_size, mapping.tpRank(rank_)) + rank_row_begin};
}

AdapterPacker::Place AdapterPacker::placeOf(const AdapterModule& module) const {
  if (module.module_id == kOutputHead) return {.layer = kOutsideLayers, .linear = LinearId::kHead};
  const auto target = findModule(table_, module.module_id, module.layer);
  if (!target) fail(ErrorCode::kUnsupported, "adapter module {} has no place in this model", module.module_name);
  const Mapping& mapping = config_.mapping;
  Place place = placeOf(*target->row, module.layer,
                        rankRowBegin(*target->row, target->target->row_begin, mapping.tp_size, mapping.tpRank(rank_)));
  place.expert = module.expert;
  place.experts = target->row->experts;
  return place;
}

// Makes one pass over an adapter. With a base it writes the packed values; without one it only counts their bytes.
class AdapterPacker::Writer {
 public:
  Writer(const AdapterPacker& packer, const Adapter& part, const ModelWeights* base, std::byte* staging,
         const std::byte* device, AdapterParts& parts, BackgroundThrottle* throttle)
      : places_(packer),
        config_(packer.config_),
        table_(packer.table_),
        packer_(packer.packer_),
        part_(part),
        base_(base),
        staging_(staging),
        device_(device),
        parts_(parts),
        throttle_(throttle),
        dtype_(packer.config_.dtype),
        lora_format_(packer.lora_format_) {}

  int64_t run() {
    addOwnHead();
    addHeadTokens();
    for (const AdapterModule& module : part_.modules) {
      if (module.module_id != kTokenEmbedding) addModule(module);
    }
    addLinears();
    for (const AdapterWeight& weight : part_.weights) {
      if (weight.slot.kind == SlotKind::kLinear && weight.slot.isBias()) addBias(weight);
      if (weight.slot.kind == SlotKind::kNorm) addNorm(weight);
    }
    addEmbedding();
    parts_.addVocabulary(part_.vocab_size, part_.input_vocab_size);
    return used_;
  }

 private:
  // Reserves the next piece of memory. If values are written, calls write with the piece's staging address. Returns the
  // piece's device address; null if bytes are only counted.
  template <typename Write>
  const std::byte* take(int64_t bytes, Write&& write) {
    const int64_t at = used_;
    used_ += packedPiece(bytes);
    if (base_ == nullptr) return nullptr;
    write(staging_ + at);
    return device_ + at;
  }
  PackedWeight pack(const std::byte* values, DType from, int64_t out, int64_t in) {
    const std::byte* data = take(packer_.bytes(dtype_, out, in), [&](std::byte* host) {
      if (from == dtype_) {
        packer_.packRows(values, dtype_, out, in, 0, host, throttle_);
      } else {
        const std::vector<std::byte> converted = convertedValues(values, from, dtype_, out * in, throttle_);
        packer_.packRows(converted.data(), dtype_, out, in, 0, host, throttle_);
      }
    });
    return PackedWeight{data, dtype_, out, in};
  }
  // values() returns row-major [out, in] values of type `dtype`.
  template <typename Values>
  PackedWeight pack(DType dtype, int64_t out, int64_t in, Values&& values) {
    const std::byte* data = take(packer_.bytes(dtype, out, in), [&](std::byte* host) {
      const std::vector<std::byte> rows = values();
      packer_.packRows(rows.data(), dtype, out, in, 0, host, throttle_);
    });
    return PackedWeight{data, dtype, out, in};
  }
  // Packs A or B of a linear.
  PackedWeight packTerm(const std::byte* values, DType from, int64_t out, int64_t in) {
    if (!isQuantised(lora_format_.dtype)) return pack(values, from, out, in);
    const std::byte* data = take(packer_.bytes(lora_format_, out, in), [&](std::byte* host) {
      const QuantisedTerm term = quantisedTerm(values, from, out, in, throttle_);
      // Packing charges no throttle for integers, so this does it for every few rows.
      const int64_t rows_at_once = packer_.rowsTogether();
      for (int64_t row = 0; row < out; row += rows_at_once) {
        const int64_t rows = std::min(rows_at_once, out - row);
        packer_.packRows(term.integers.data() + row * in, lora_format_, rows, in, row, host, nullptr);
        packer_.packScales(term.scales.data() + row, DType::kFloat32, lora_format_, rows, in, row, host);
        chargeThrottle(throttle_, static_cast<size_t>(rows * in));
      }
    });
    return {data, lora_format_, out, in};
  }
  // values() returns `count` values.
  template <typename Values>
  const float* takeFloats(int64_t count, Values&& values) {
    constexpr size_t kBytes = sizeof(float);
    return reinterpret_cast<const float*>(take(count * static_cast<int64_t>(kBytes), [&](std::byte* host) {
      const auto& floats = values();
      std::memcpy(host, floats.data(), floats.size() * kBytes);
    }));
  }
  const float* copyFloats(std::span<const float> values) {
    return takeFloats(std::ssize(values), [&] { return values; });
  }

  LoraTerm partOf(const AdapterModule& module, int64_t out_begin) {
    LoraTerm linear{.out_begin = out_begin, .scale = module.scale};
    linear.a = packTerm(module.a, module.dtype, module.rank, module.in);
    linear.b = packTerm(module.b, module.dtype, module.out, module.rank);
    if (!module.bias.empty()) linear.bias = copyFloats(module.bias);
    if (!module.magnitude.empty()) {
      assert(base_ == nullptr || module.magnitude_is_normalised);
      linear.magnitude = copyFloats(module.magnitude);
    }
    return linear;
  }

  void addModule(const AdapterModule& module) {
    const Place place = places_.placeOf(module);
    const LoraTerm term = partOf(module, place.out_begin);
    if (place.experts > 0) {
      parts_.addToExpert(place.layer, place.linear, place.experts, place.expert, term);
    } else {
      parts_.add(place.layer, place.linear, term);
    }
  }

  // The type of the linear's weight in a model without quantisation.
  DType typeOf(LinearId linear) const { return findRow(table_, slotOf(linear))->dtype.value_or(dtype_); }

  // Output features and inputs of the runtime's linear on this rank.
  std::pair<int64_t, int64_t> sizeOf(LinearId linear) const {
    const Mapping& mapping = config_.mapping;
    int64_t out = 0, in = 0;
    for (const WeightRow& row : table_) {
      if (row.slot.whole() != slotOf(linear)) continue;
      const TensorSlice slice = sliceForRank(row, mapping.tp_size, mapping.tpRank(places_.rank_));
      out += slice.rows;
      in = slice.cols;
    }
    return {out, in};
  }

  static bool isHead(const AdapterWeight& weight) { return weight.slot == slotOf(LinearId::kHead); }
  Place placeOf(const AdapterWeight& weight) const {
    return places_.placeOf(*findRow(table_, weight.slot.weight()), weight.layer, weight.row_begin);
  }

  // Adds whole weights of the layers' linears. Rows that the adapter does not replace are copied from the base. If the
  // base is quantised, such a weight is float32, so that the copied rows are not rounded.
  void addLinears() {
    std::map<std::pair<int32_t, LinearId>, std::vector<std::pair<int64_t, const AdapterWeight*>>> linears;
    for (const AdapterWeight& weight : part_.weights) {
      if (weight.slot.kind != SlotKind::kLinear || weight.slot.isBias() || isHead(weight)) continue;
      const Place place = placeOf(weight);
      linears[{place.layer, place.linear}].emplace_back(place.out_begin, &weight);
    }
    for (const auto& [where, weights] : linears) {
      const auto [layer, linear] = where;
      const auto [out, in] = sizeOf(linear);
      int64_t replaced = 0;
      for (const auto& [begin, weight] : weights) replaced += weight->rows;
      const DType dtype = replaced < out && weightQuantisation(config_) ? DType::kFloat32 : typeOf(linear);
      const auto values = [&, where = where, &weights = weights, out = out, in = in] {
        return mergedRows(where.first, where.second, weights, out, in, dtype);
      };
      parts_.addWeight(layer, linear, pack(dtype, out, in, values));
    }
  }

  std::vector<std::byte> mergedRows(int32_t layer, LinearId linear,
                                    const std::vector<std::pair<int64_t, const AdapterWeight*>>& weights, int64_t out,
                                    int64_t in, DType dtype) const {
    std::vector<float> rows(static_cast<size_t>(out * in));
    unpackRows(packer_, base_->at(layer)[linear].weight, out, rows.data(), throttle_);
    for (const auto& [begin, weight] : weights) {
      std::vector<float> own(static_cast<size_t>(weight->rows * weight->cols));
      roundValues(weight->data, weight->dtype, typeOf(linear), own, throttle_);
      std::copy(own.begin(), own.end(), rows.begin() + begin * in);
    }
    return convertedValues(bytesOf(rows), DType::kFloat32, dtype, out * in, throttle_);
  }

  // Adds the difference from the base's bias, because the consumer of the linear adds the base's bias later. Tokens
  // that the adapter adds to the output head have no bias of the base.
  void addBias(const AdapterWeight& weight) {
    const bool of_head = weight.slot.weight() == slotOf(LinearId::kHead);
    const Place place = of_head ? Place{.layer = kOutsideLayers, .linear = LinearId::kHead} : placeOf(weight);
    const int64_t in = of_head ? config_.embedding_size : sizeOf(place.linear).second;
    std::vector<float> bias(static_cast<size_t>(weight.rows));
    convertElements(weight.data, weight.dtype, bias.data(), DType::kFloat32, bias.size(), throttle_);
    if (base_ != nullptr) {
      const LinearWeights& base = base_->at(place.layer)[place.linear];
      const int64_t count = std::min(std::ssize(bias), base.weight.out - place.out_begin);
      for (int64_t i = 0; i < count; ++i) bias[static_cast<size_t>(i)] -= base.bias[place.out_begin + i];
    }
    parts_.add(place.layer, place.linear,
               {.out_begin = place.out_begin,
                .a = {nullptr, dtype_, 0, in},
                .b = {nullptr, dtype_, weight.rows, 0},
                .bias = copyFloats(bias)});
  }

  void addNorm(const AdapterWeight& weight) {
    std::vector<float> values(static_cast<size_t>(weight.rows));
    convertElements(weight.data, weight.dtype, values.data(), DType::kFloat32, values.size(), throttle_);
    const float* copy = copyFloats(values);
    NormWeights norm = {.size = weight.rows};
    (weight.slot.isBias() ? norm.bias : norm.weight) = copy;
    parts_.addNorm(places_.localLayer(weight.layer), weight.slot.norm(), norm);
  }

  void addHead(const LoraTerm& part) { parts_.add(kOutsideLayers, LinearId::kHead, part); }
  void addHeadWeight(const PackedWeight& weight) { parts_.addWeight(kOutsideLayers, LinearId::kHead, weight); }

  void addOwnHead() {
    for (const AdapterWeight& weight : part_.weights) {
      if (!isHead(weight)) continue;
      addHeadWeight(pack(weight.data, weight.dtype, weight.rows, weight.cols));
      return;
    }
    if (part_.vocab_size > config_.vocab_size && !part_.head_tokens.empty()) addHeadWithRoom();
  }

  // Adds a head weight with room for added tokens whose rows are only in head_tokens: the base's rows, then zeros.
  // addHeadTokens() adds the rows of these tokens.
  void addHeadWithRoom() {
    const int64_t out = vocabularyShare(config_) + part_.vocab_size - config_.vocab_size;
    const int64_t in = config_.embedding_size;
    const DType dtype = weightQuantisation(config_) ? DType::kFloat32 : dtype_;
    addHeadWeight(pack(dtype, out, in, [&] {
      const PackedWeight& base = base_->outside[LinearId::kHead].weight;
      std::vector<float> rows(static_cast<size_t>(out * in));
      unpackRows(packer_, base, base.out, rows.data(), throttle_);
      return convertedValues(bytesOf(rows), DType::kFloat32, dtype, out * in, throttle_);
    }));
  }

  // Adds two LoRA terms for each run of replaced rows. The first has magnitude 0 and removes the base's product. The
  // second adds the product with the new rows: they are its A, and its B is the identity, whose size grows with the
  // square of the run's length.
  void addHeadTokens() {
    constexpr size_t kLongestRun = 256;
    const AdapterTokens& tokens = part_.head_tokens;
    const int64_t hidden = config_.embedding_size;
    for (const auto& [first, count] : runsOf(tokens.tokens, kLongestRun)) {
      const auto rows = static_cast<int64_t>(count);
      const int64_t out_begin = tokens.tokens[first];
      addHead({.out_begin = out_begin,
               .a = {nullptr, dtype_, 0, hidden},
               .b = {nullptr, dtype_, rows, 0},
               .magnitude = copyFloats(std::vector<float>(count, 0.0f))});
      LoraTerm rows_part{.out_begin = out_begin};
      const std::byte* values =
          base_ == nullptr ? nullptr : bytesOf(tokens.rows) + first * static_cast<size_t>(hidden) * sizeof(float);
      rows_part.a = pack(values, DType::kFloat32, rows, hidden);
      rows_part.b = pack(dtype_, rows, rows, [&, n = count] {
        std::vector<float> identity(n * n);
        for (size_t i = 0; i < n; ++i) identity[i * n + i] = 1;
        return convertedValues(bytesOf(identity), DType::kFloat32, dtype_, rows * rows, throttle_);
      });
      addHead(rows_part);
    }
  }

  void addEmbedding() {
    AdapterEmbedding embedding;
    for (const AdapterWeight& weight : part_.weights) {
      if (weight.slot != slotOf(TableId::kTokens)) continue;
      const int64_t count = weight.rows * weight.cols;
      embedding.table = {.data = take(count * static_cast<int64_t>(dtypeSize(dtype_)),
                                      [&](std::byte* host) {
                                        convertElements(weight.data, weight.dtype, host, dtype_,
                                                        static_cast<size_t>(count), throttle_);
                                      }),
                         .dtype = dtype_,
                         .vocab = weight.rows,
                         .first_token = weight.row_begin};
    }
    const AdapterTokens& tokens = part_.embedding_tokens;
    if (!tokens.empty()) {
      embedding.replaced = std::ssize(tokens.tokens);
      embedding.replaced_tokens = reinterpret_cast<const int32_t*>(take(embedding.replaced * 4, [&](std::byte* host) {
        std::memcpy(host, tokens.tokens.data(), tokens.tokens.size() * 4);
      }));
      embedding.replaced_rows = takeFloats(tokens.elements(), [&] {
        std::vector<float> rows(tokens.rows.size());
        roundValues(bytesOf(tokens.rows), DType::kFloat32, dtype_, rows, throttle_);
        return rows;
      });
    }
    for (const AdapterModule& module : part_.modules) {
      if (module.module_id == kTokenEmbedding) embedding.parts.push_back(embeddingPart(module));
    }
    if (base_ != nullptr && !embedding.empty()) parts_.addEmbedding(embedding);
  }

  EmbeddingPart embeddingPart(const AdapterModule& module) {
    EmbeddingPart part{.scale = module.scale};
    const size_t size = dtypeSize(dtype_);
    const auto rank = static_cast<size_t>(module.rank);
    const auto tokens = static_cast<size_t>(module.in);
    const std::byte* table = take(static_cast<int64_t>(rank * tokens * size), [&](std::byte* host) {
      const std::vector<std::byte> a =
          convertedValues(module.a, module.dtype, dtype_, module.rank * module.in, throttle_);
      for (size_t r = 0; r < rank; ++r) {
        for (size_t t = 0; t < tokens; ++t)
          std::memcpy(host + (t * rank + r) * size, &a[(r * tokens + t) * size], size);
      }
    });
    part.a = {.data = table, .dtype = dtype_, .vocab = module.in, .first_token = firstToken()};
    part.b = pack(module.b, module.dtype, module.out, module.rank);
    if (!module.magnitude.empty()) part.magnitude = copyFloats(module.magnitude);
    return part;
  }

  // First token of the rank's shard of the embedding table; 0 if the table is not cut along the vocabulary.
  int64_t firstToken() const {
    const Mapping& mapping = config_.mapping;
    if (!config_.use_parallel_embedding || config_.embedding_sharding_dim != 0) return 0;
    const int64_t all = part_.input_vocab_size > 0 ? part_.input_vocab_size : config_.vocab_size;
    return tokenShare(all, mapping.tp_size, mapping.tpRank(places_.rank_)).begin;
  }

  const AdapterPacker& places_;
  const ModelConfig& config_;
  const WeightTable& table_;
  const WeightPacker& packer_;
  const Adapter& part_;
  const ModelWeights* base_;
  std::byte* staging_;
  const std::byte* device_;
  AdapterParts& parts_;
  BackgroundThrottle* throttle_;
  DType dtype_;
  WeightFormat lora_format_;
  int64_t used_ = 0;
};

int64_t AdapterPacker::bytes(const Adapter& part) const {
  AdapterParts counted(config_.num_hidden_layers);
  return Writer(*this, part, nullptr, nullptr, nullptr, counted, nullptr).run();
}

void AdapterPacker::pack(const Adapter& part, const ModelWeights& base, std::byte* staging, const std::byte* device,
                         AdapterParts& parts, BackgroundThrottle* throttle) const {
  Writer(*this, part, &base, staging, device, parts, throttle).run();
}

}  // namespace chorus
