// The functions of Session that prepare an adapter: they pack a rank's share, remove copies of the base's weights, and
// compute the row norms by which DoRA divides.
#include <algorithm>
#include <cstring>

#include "base/aligned_buffer.h"
#include "base/background_throttle.h"
#include "base/error.h"
#include "engine/adapter_limits.h"
#include "engine/adapter_packer.h"
#include "engine/adapter_values.h"
#include "engine/session.h"
#include "lora/adapter.h"
#include "lora/module_ids.h"

namespace chorus {
namespace {

// The shard's weight for a slot outside layers; null if it has none.
const AdapterWeight* weightOf(const Adapter& part, const WeightSlot& slot) {
  const auto found = std::find_if(part.weights.begin(), part.weights.end(),
                                  [&](const AdapterWeight& weight) { return weight.slot == slot; });
  return found == part.weights.end() ? nullptr : &*found;
}

const std::byte* rowOf(const AdapterWeight& weight, int64_t row) {
  return weight.data + static_cast<size_t>(row * weight.cols) * dtypeSize(weight.dtype);
}

bool sameTable(const AdapterWeight& weight, const TableWeights& weights, BackgroundThrottle* throttle) {
  const auto& [base, cols] = weights;
  if (weight.rows > base.vocab || weight.cols != cols || weight.row_begin != base.first_token) return false;
  const size_t row_bytes = static_cast<size_t>(cols) * dtypeSize(base.dtype);
  std::vector<std::byte> row(row_bytes);
  const auto* table = static_cast<const std::byte*>(base.data);
  for (int64_t i = 0; i < weight.rows; ++i) {
    convertElements(rowOf(weight, i), weight.dtype, row.data(), base.dtype, static_cast<size_t>(cols), throttle);
    if (std::memcmp(row.data(), table + static_cast<size_t>(i) * row_bytes, row_bytes) != 0) return false;
    chargeThrottle(throttle, row_bytes);
  }
  return true;
}

bool sameHead(const AdapterWeight& weight, const PackedWeight& base, DType dtype, const WeightPacker& packer,
              BackgroundThrottle* throttle) {
  if (weight.rows != base.out || weight.cols != base.in || base.dtype != dtype) return false;
  std::vector<float> row(static_cast<size_t>(base.in)), own(row.size());
  for (int64_t i = 0; i < weight.rows; ++i) {
    packer.unpackRow(base, i, row.data());
    roundValues(rowOf(weight, i), weight.dtype, dtype, own, throttle);
    if (own != row) return false;
    chargeThrottle(throttle, row.size() * sizeof(float));
  }
  return true;
}

// scale * B A of a module, with A and B rounded as in the products.
class Delta {
 public:
  // format: of A and B in the products.
  Delta(const AdapterModule& module, const WeightFormat& format, BackgroundThrottle* throttle)
      : module_(module),
        a_(termValues(module.a, module.dtype, format, module.rank, module.in, throttle)),
        b_(termValues(module.b, module.dtype, format, module.out, module.rank, throttle)) {}
  // Adds row `out` to `row`.
  void addRow(int64_t out, std::vector<float>& row) const {
    for (int64_t r = 0; r < module_.rank; ++r) {
      const float factor = module_.scale * b_[static_cast<size_t>(out * module_.rank + r)];
      const float* a_row = a_.data() + r * module_.in;
      for (int64_t i = 0; i < module_.in; ++i) row[static_cast<size_t>(i)] += factor * a_row[i];
    }
  }
  // Adds column `in` to `column`.
  void addColumn(int64_t in, std::vector<float>& column) const {
    for (int64_t r = 0; r < module_.rank; ++r) {
      const float factor = module_.scale * a_[static_cast<size_t>(r * module_.in + in)];
      for (int64_t o = 0; o < module_.out; ++o) {
        column[static_cast<size_t>(o)] += factor * b_[static_cast<size_t>(o * module_.rank + r)];
      }
    }
  }

 private:
  const AdapterModule& module_;
  std::vector<float> a_, b_;
};

// Row `feature` of the shard's output head: its row in head_tokens, in the adapter's own head or in the base's,
// whichever comes first.
void headRow(const Adapter& part, const PackedWeight& base, DType dtype, int64_t feature, const WeightPacker& packer,
             std::vector<float>& row, BackgroundThrottle* throttle) {
  const std::vector<int32_t>& tokens = part.head_tokens.tokens;
  const auto token = std::lower_bound(tokens.begin(), tokens.end(), feature);
  if (token != tokens.end() && *token == feature) {
    const auto at = static_cast<size_t>(token - tokens.begin()) * row.size();
    roundValues(reinterpret_cast<const std::byte*>(part.head_tokens.rows.data() + at), DType::kFloat32, dtype, row,
                throttle);
  } else if (const AdapterWeight* own = weightOf(part, slotOf(LinearId::kHead))) {
    roundValues(rowOf(*own, feature), own->dtype, dtype, row, throttle);
  } else {
    packer.unpackRow(base, feature, row.data());
  }
}

// Sums of squares of the columns of the adapted embedding table. A column is one output of the module.
std::vector<double> squaredColumns(const Adapter& part, const AdapterModule& module, const EmbeddingTable& base,
                                   DType dtype, BackgroundThrottle* throttle) {
  const Delta delta(module, dtype, throttle);
  const AdapterWeight* own = weightOf(part, slotOf(TableId::kTokens));
  const auto* table = static_cast<const std::byte*>(base.data);
  std::vector<float> values(static_cast<size_t>(module.out));
  std::vector<double> sums(values.size());
  for (int64_t token = 0; token < module.in; ++token) {
    if (own != nullptr) {
      roundValues(rowOf(*own, token), own->dtype, dtype, values, throttle);
    } else {
      const size_t row_bytes = values.size() * dtypeSize(base.dtype);
      roundValues(table + static_cast<size_t>(token) * row_bytes, base.dtype, dtype, values, throttle);
    }
    delta.addColumn(token, values);
    for (size_t o = 0; o < values.size(); ++o) sums[o] += static_cast<double>(values[o]) * values[o];
    chargeThrottle(throttle, values.size() * sizeof(float) * static_cast<size_t>(1 + module.rank));
  }
  return sums;
}
}  // namespace

void Session::dropCopiesOfBase(Adapter& part, BackgroundThrottle* throttle) const {
  const SlotWeights& base = baseWeights().outside;
  const DType dtype = engine_->config().dtype;
  std::erase_if(part.weights, [&](const AdapterWeight& weight) {
    if (!mayBeCopyOfBase(part, weight)) return false;
    if (weight.slot == slotOf(TableId::kTokens)) return sameTable(weight, base[TableId::kTokens], throttle);
    return sameHead(weight, base[LinearId::kHead].weight, dtype, engine_->packer(), throttle);
  });
}

std::vector<double> Session::squaredRowNorms(const Adapter& part, const AdapterModule& module,
                                             BackgroundThrottle* throttle) const {
  const DType dtype = engine_->config().dtype;
  const WeightPacker& packer = engine_->packer();
  const ModelWeights& base = baseWeights();
  if (module.module_id == kTokenEmbedding) {
    return squaredColumns(part, module, base.outside[TableId::kTokens].table, dtype, throttle);
  }
  const Delta delta(module, loraFormat(), throttle);
  const bool head = module.module_id == kOutputHead;
  const auto place = adapterPacker().placeOf(module);
  const PackedWeight& first = base.at(place.layer)[place.linear].weight;
  const PackedWeight weight = place.experts > 0 ? packer.expertOf(first, place.expert) : first;
  std::vector<float> row(static_cast<size_t>(module.in));
  std::vector<double> sums(static_cast<size_t>(module.out));
  for (int64_t o = 0; o < module.out; ++o) {
    if (head) {
      headRow(part, weight, dtype, o, packer, row, throttle);
    } else {
      packer.unpackRow(weight, place.out_begin + o, row.data());
    }
    delta.addRow(o, row);
    double sum = 0;
    for (const float x : row) sum += static_cast<double>(x) * x;
    sums[static_cast<size_t>(o)] = sum;
    chargeThrottle(throttle, row.size() * sizeof(float) * static_cast<size_t>(1 + module.rank));
  }
  return sums;
}

AdapterPacker Session::adapterPacker() const {
  return {engine_->config(), table_, engine_->packer(), engine_->rank(), loraFormat()};
}

int64_t Session::packedBytes(const Adapter& part) const { return adapterPacker().bytes(part); }

std::shared_ptr<const AdapterParts> Session::packAdapter(const Adapter& part, BackgroundThrottle* throttle) const {
  const AdapterPacker packer = adapterPacker();
  const int64_t bytes = packer.bytes(part);
  if (bytes > options().max_adapter_bytes) {
    fail(ErrorCode::kTooLarge, "adapter '{}' takes {} bytes, more than the {} of the adapter cache", part.name, bytes,
         options().max_adapter_bytes);
  }
  const auto total = static_cast<size_t>(bytes);
  DeviceBuffer memory = adapter_memory_->take(total);
  std::byte* const view = backend_->hostView(memory);
  const AlignedBuffer staging(view == nullptr ? total : 0);
  std::byte* const packed = view == nullptr ? staging.as<std::byte>() : view;
  auto parts = std::make_shared<AdapterParts>(engine_->layers().count());
  packer.pack(part, baseWeights(), packed, memory.as<std::byte>(), *parts, throttle);
  if (view == nullptr) {
    const Stream stream;
    inPieces(static_cast<int64_t>(total), 1, throttle, [&](int64_t begin, int64_t bytes) {
      backend_->upload(memory.as<std::byte>() + begin, packed + begin, static_cast<size_t>(bytes), stream);
    });
    backend_->synchronize(stream);
  }
  parts->own(std::move(memory), total, [pool = std::weak_ptr(adapter_memory_)](DeviceBuffer freed) {
    if (const auto kept = pool.lock()) kept->give(std::move(freed));
  });
  return parts;
}

}  // namespace chorus
