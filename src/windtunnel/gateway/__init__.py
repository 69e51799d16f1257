"""The metered door: every model call leaves a container here. A process of its own, one per run."""
