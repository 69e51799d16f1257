"""The disk: every path, crash-safe files, runs, results, configs, tasks."""
