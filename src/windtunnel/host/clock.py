"""Wall clock for people, monotonic clock for durations."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path

__all__ = ["boot_id", "monotonic", "utc_now", "utc_text"]


def utc_text(moment: datetime) -> str:
    """UTC with milliseconds and Z: `2026-12-01T01:02:03.004Z`."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def utc_now() -> str:
    """Now, as text."""
    return utc_text(datetime.now(UTC))


def monotonic() -> float:
    """Seconds on a clock that never jumps."""
    return time.monotonic()


def boot_id() -> str:
    """This boot of this machine; a pid means something only together with it."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
