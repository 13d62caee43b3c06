// The process_* metrics that every Prometheus client exports.
#pragma once

#include "server/metrics/metric_families.h"

namespace chorus::server {

// Reads /proc/self. What cannot be read is left out.
void addProcessMetrics(MetricFamilies& families);

}  // namespace chorus::server
