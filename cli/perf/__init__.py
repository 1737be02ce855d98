"""`stagecoach perf`: throughput and latency of the operations, in cycles of simulated devices."""
