"""How much memory this machine has."""

from __future__ import annotations

import psutil

__all__ = ["total_mb"]


def total_mb() -> int:
    """RAM in MiB (2^20 bytes)."""
    return int(psutil.virtual_memory().total // (1024 * 1024))
