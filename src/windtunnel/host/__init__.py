"""The machine: clock, processes, memory, credentials (is it set?)."""
