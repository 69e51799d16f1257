"""Hold everything constant, change one thing, believe the difference."""

__all__ = ["__version__"]

__version__ = "0.1.0"
