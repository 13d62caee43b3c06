// Session's part in preparing an adapter: packing a rank's modules, and the row norms that DoRA divides by.
#include <cassert>
#include <cstring>

#include "base/aligned_buffer.h"
#include "base/error.h"
#include "base/pace.h"
#include "checkpoint/shard.h"
#include "engine/adapter_limits.h"
#include "engine/engine_layout.h"
#include "engine/session.h"
#include "lora/adapter.h"
#include "lora/adapter_builder.h"

namespace chorus {
namespace {

// Values of A or B in the engine's dtype, row-major, in host memory.
std::vector<std::byte> convertValues(const std::byte* data, DType from, DType to, int64_t count) {
  std::vector<std::byte> out(static_cast<size_t>(count) * dtypeSize(to));
  convertElements(data, from, out.data(), to, static_cast<size_t>(count));
  return out;
}
}  // namespace

Session::Place Session::placeOf(const AdapterModule& module) const {
  const Mapping& mapping = engine_->config().mapping;
  const int32_t tp_rank = mapping.tpRank(engine_->rank());
  const auto target = findModule(table_, module.module_id);
  const WeightRow* row = target ? target->row : nullptr;
  const auto linear = row ? linearPlace(*row, sliceForRank(*row, mapping.tp_size, tp_rank).rows) : std::nullopt;
  if (!linear) fail(ErrorCode::kUnsupported, "adapter module {} has no place in this model", module.module_name);
  return {.layer = module.layer - engine_->layers().begin,
          .linear = linear->linear,
          .out_begin = linear->row_begin + rankRowBegin(*row, target->target->row_begin, mapping.tp_size, tp_rank)};
}

std::vector<double> Session::squaredRowNorms(const AdapterModule& module) const {
  const DType dtype = engine_->config().dtype;
  const Place place = placeOf(module);
  const PackedWeight base = linearOf(place.layer, place.linear);
  std::vector<float> a(static_cast<size_t>(module.rank * module.in));
  std::vector<float> b(static_cast<size_t>(module.out * module.rank));
  convertElements(convertValues(module.a, module.dtype, dtype, std::ssize(a)).data(), dtype, a.data(), DType::kFloat32,
                  a.size());
  convertElements(convertValues(module.b, module.dtype, dtype, std::ssize(b)).data(), dtype, b.data(), DType::kFloat32,
                  b.size());
  std::vector<float> row(static_cast<size_t>(base.in));
  std::vector<double> sums(static_cast<size_t>(module.out));
  for (int64_t o = 0; o < module.out; ++o) {
    unpackRow(base, place.out_begin + o, row.data());
    for (int64_t r = 0; r < module.rank; ++r) {
      const float factor = module.scale * b[static_cast<size_t>(o * module.rank + r)];
      const float* a_row = a.data() + r * module.in;
      for (int64_t i = 0; i < module.in; ++i) row[static_cast<size_t>(i)] += factor * a_row[i];
    }
    double sum = 0;
    for (const float x : row) sum += static_cast<double>(x) * x;
    sums[static_cast<size_t>(o)] = sum;
    worked(row.size() * sizeof(float) * static_cast<size_t>(1 + module.rank));
  }
  return sums;
}

std::shared_ptr<const AdapterParts> Session::packAdapter(const Adapter& part) const {
  const DType dtype = engine_->config().dtype;
  const auto total = static_cast<size_t>(packedAdapterBytes(part, dtype));
  DeviceBuffer memory = adapter_memory_->take(total);
  std::byte* const view = backend_->hostView(memory);
  const AlignedBuffer staging(view == nullptr ? total : 0);
  std::byte* const packed = view == nullptr ? staging.as<std::byte>() : view;
  int64_t used = 0;
  // Takes the next piece of memory; returns its staging address, and where the device will find it.
  const auto take = [&](int64_t bytes) {
    const std::pair<std::byte*, std::byte*> piece{packed + used, memory.as<std::byte>() + used};
    used += packedPiece(bytes);
    return piece;
  };
  const auto pack = [&](const std::byte* values, DType from, int64_t out, int64_t in) {
    const auto [host, device] = take(packedBytes(dtype, out, in));
    if (from == dtype)
      packRows(values, dtype, out, in, 0, host);
    else
      packRows(convertValues(values, from, dtype, out * in).data(), dtype, out, in, 0, host);
    return PackedWeight{device, dtype, out, in};
  };

  auto parts = std::make_shared<AdapterParts>(engine_->layers().count());
  for (const AdapterModule& module : part.modules) {
    const Place place = placeOf(module);
    LinearPart linear{.out_begin = place.out_begin, .scale = module.scale};
    linear.a = pack(module.a, module.dtype, module.rank, module.in);
    linear.b = pack(module.b, module.dtype, module.out, module.rank);
    if (!module.magnitude.empty()) {
      assert(module.magnitude_is_normalised);
      const auto [host, device] = take(module.out * 4);
      std::memcpy(host, module.magnitude.data(), module.magnitude.size() * 4);
      linear.magnitude = reinterpret_cast<const float*>(device);
    }
    parts->add(place.layer, place.linear, linear);
  }
  if (view == nullptr) {
    const Stream stream;
    inPieces(static_cast<int64_t>(total), 1, [&](int64_t begin, int64_t bytes) {
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
