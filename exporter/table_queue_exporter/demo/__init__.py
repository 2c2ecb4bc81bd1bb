"""The reference queue, its workers and their faults: for the demo, for tests, to be copied."""
