"""Read what a short command prints, bounded: what is beyond the limit is drained and thrown away."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

__all__ = ["Bounded", "drain"]

_CHUNK = 65536


@dataclass
class Bounded:
    """One stream's bytes, cut at the limit."""

    limit: int
    data: bytearray = field(default_factory=bytearray)
    truncated: bool = False

    def add(self, chunk: bytes) -> None:
        """Keep what fits."""
        room = self.limit - len(self.data)
        self.data += chunk[:room]
        self.truncated = self.truncated or len(chunk) > room


async def drain(reader: asyncio.StreamReader, into: Bounded) -> None:
    """Read to the end; the writer is never blocked by a full limit."""
    while chunk := await reader.read(_CHUNK):
        into.add(chunk)
