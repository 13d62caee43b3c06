// Session::prepareAdapter: an adapter as read -> packed parts of this rank's linears.
#include <cmath>
#include <cstring>

#include "base/aligned_buffer.h"
#include "base/error.h"
#include "checkpoint/weight_table.h"
#include "engine/adapter_limits.h"
#include "engine/engine_layout.h"
#include "engine/session.h"
#include "lora/adapter.h"

namespace chorus {
namespace {

// Where one module's output features stand in the runtime's linears.
struct ModulePlace {
  LinearId linear;
  int64_t out_begin;
  std::string engine_name;  // with "{}" for the layer
};

ModulePlace placeOf(const AdapterModule& module, const WeightTable& table) {
  for (const WeightRow& row : table) {
    for (const LoraTarget& target : row.lora_targets) {
      if (target.module_id != module.module_id) continue;
      const auto place = linearPlace(row, row.shape[0]);
      if (!place) break;
      const RankTensor tensor{row.name, row.shape, DType::kFloat32, &row, -1};
      return {place->linear, place->row_begin + target.row_begin, placeInEngine(tensor).name};
    }
  }
  fail(ErrorCode::kUnsupported, "adapter module {} has no place in this model", module.module_name);
}

// Rows of A or B in the engine's dtype, row-major, in host memory.
std::vector<std::byte> convertRows(const std::byte* data, DType from, DType to, int64_t count) {
  std::vector<std::byte> out(static_cast<size_t>(count) * dtypeSize(to));
  convertElements(data, from, out.data(), to, static_cast<size_t>(count));
  return out;
}

// DoRA's factor per output feature, m / ||W + scale B A||, norms over each row (PEFT's DoraLinearLayer), from the
// rounded A and B that the products use.
std::vector<float> normalisedMagnitude(const AdapterModule& module, const PackedWeight& base, int64_t base_row,
                                       DType dtype, const std::vector<std::byte>& a, const std::vector<std::byte>& b) {
  std::vector<float> wide_a(static_cast<size_t>(module.rank * module.in));
  convertElements(a.data(), dtype, wide_a.data(), DType::kFloat32, wide_a.size());
  std::vector<float> row(static_cast<size_t>(base.in));
  std::vector<float> factors(static_cast<size_t>(module.out));
  for (int64_t o = 0; o < module.out; ++o) {
    unpackRow(base, base_row + o, row.data());
    for (int64_t r = 0; r < module.rank; ++r) {
      const float factor =
          module.scale * loadAsFloat(b.data(), dtype, static_cast<size_t>(o * module.rank + r));
      const float* a_row = wide_a.data() + r * module.in;
      for (int64_t i = 0; i < module.in; ++i) row[static_cast<size_t>(i)] += factor * a_row[i];
    }
    double sum = 0;
    for (const float x : row) sum += static_cast<double>(x) * x;
    factors[static_cast<size_t>(o)] = module.magnitude[static_cast<size_t>(o)] / static_cast<float>(std::sqrt(sum));
  }
  return factors;
}
}  // namespace

std::shared_ptr<const AdapterParts> Session::prepareAdapter(const Adapter& adapter) const {
  checkServable(adapter, engine_->buildConfig());
  const ModelConfig& config = engine_->config();
  const DType dtype = config.dtype;
  const WeightTable table = engine_->architecture().weightTable(config);

  const int64_t total = packedAdapterBytes(adapter, dtype);
  DeviceBuffer memory = backend_->allocate(static_cast<size_t>(total));
  const AlignedBuffer staging(static_cast<size_t>(total));
  int64_t used = 0;
  // Takes the next piece of memory; returns its staging address, and where the device will find it.
  const auto take = [&](int64_t bytes) {
    const std::pair<std::byte*, std::byte*> piece{staging.as<std::byte>() + used, memory.as<std::byte>() + used};
    used += packedPiece(bytes);
    return piece;
  };

  auto parts = std::make_shared<AdapterParts>(config.num_hidden_layers);
  for (const AdapterModule& module : adapter.modules) {
    const ModulePlace place = placeOf(module, table);
    const auto a = convertRows(module.a, module.dtype, dtype, module.rank * module.in);
    const auto b = convertRows(module.b, module.dtype, dtype, module.out * module.rank);
    LinearPart part{.out_begin = place.out_begin, .scale = module.scale};

    const auto [a_host, a_device] = take(packedBytes(dtype, module.rank, module.in));
    packRows(a.data(), dtype, module.rank, module.in, 0, a_host);
    part.a = {a_device, dtype, module.rank, module.in};
    const auto [b_host, b_device] = take(packedBytes(dtype, module.out, module.rank));
    packRows(b.data(), dtype, module.out, module.rank, 0, b_host);
    part.b = {b_device, dtype, module.out, module.rank};

    if (!module.magnitude.empty()) {
      const PackedWeight base = linearOf(module.layer, place.linear);
      const std::vector<float> factors = module.magnitude_is_normalised
                                             ? module.magnitude
                                             : normalisedMagnitude(module, base, place.out_begin, dtype, a, b);
      const auto [host, device] = take(module.out * 4);
      std::memcpy(host, factors.data(), factors.size() * 4);
      part.magnitude = reinterpret_cast<const float*>(device);
    }
    parts->add(module.layer, place.linear, part);
  }
  const Stream stream;
  backend_->upload(memory.data(), staging.data(), static_cast<size_t>(total), stream);
  backend_->synchronize(stream);
  parts->own(std::move(memory));
  parts->content_hash = adapter.content_hash;
  return parts;
}

}  // namespace chorus
