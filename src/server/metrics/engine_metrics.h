// The metrics of the engine: batch, steps, KV blocks and adapter cache.
#pragma once

#include "server/metrics/metric_families.h"
#include "server/model/api_context.h"

namespace chorus::server {

// labels: those of vLLM's families and of NIM's.
void addEngineMetrics(MetricFamilies& families, const ApiContext& context, const MetricLabels& labels);

}  // namespace chorus::server
