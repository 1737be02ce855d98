"""Queue Pairs and Completion Queues: rings in host memory, scheduling, completion, QP states."""
