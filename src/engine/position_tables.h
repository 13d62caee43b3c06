// RoPE tables, factors of queries and ALiBi slopes of one rank's layers, in device memory.
#pragma once

#include <vector>

#include "kernels/backend.h"
#include "models/blocks/attention.h"
#include "models/model_spec.h"

namespace chorus {

// Layers with equal specs share tables.
class DevicePositionTables {
 public:
  // positions: number of positions that sequences may have. Throws Error(kExhausted).
  DevicePositionTables(const ModelSpec& spec, int64_t positions, Backend& backend);

  // The device memory in bytes that the constructor allocates.
  static int64_t bytes(const ModelSpec& spec, int64_t positions);

  // Returns one table for each layer; valid as long as this object.
  const std::vector<PositionTables>& ofLayers() const { return of_layers_; }

 private:
  std::vector<DeviceBuffer> buffers_;
  std::vector<PositionTables> of_layers_;
};

}  // namespace chorus
