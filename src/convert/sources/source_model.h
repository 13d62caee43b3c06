// A model as a source holds it, checked and ready to be copied into a checkpoint.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "checkpoint/config.h"
#include "checkpoint/weight_table.h"
#include "convert/convert_options.h"
#include "formats/source_tensors.h"

namespace chorus {

// Tensors of parts of the model that are not served (Architecture::left_out).
struct LeftOutTensors {
  int64_t count = 0;
  uint64_t bytes = 0;
};

struct SourceModel {
  SourceTensors tensors;
  ModelConfig config;                                // of the checkpoint to write
  WeightTable table;                                 // weight table of `config`
  SourceFormat format = SourceFormat::kHuggingFace;  // whose names `tensors` has; every row has sources in it
  // The source holds the integers and scales of config.quantization, which are copied. Otherwise the weights that the
  // config quantises are quantised on the way.
  bool quantised = false;
  LeftOutTensors left_out = {};
};

// Sets everything in the config that comes from the options instead of the source, except the dtype, and finalises it.
// where: the source's name in errors. Throws Error if the options do not suit the model.
void applyOptions(const ConvertOptions& options, ModelConfig& config, std::string_view where);

// Whether two tensors have the same shape, type and values. Reads both.
bool haveEqualValues(const SourceTensor& a, const SourceTensor& b);

// Checks that every source tensor of the table is present with the right shape and a convertible dtype, and that there
// are no other tensors except those that a pattern (fnmatch) of `ignored` matches. where, config_name: the names of the
// source and of its config in errors. Throws Error that names the tensor.
void checkSources(const SourceModel& model, std::span<const std::string> ignored, std::string_view where,
                  std::string_view config_name);

}  // namespace chorus
