"""The phases of an attempt: each is an event, a duration and a time-out of its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from windtunnel.domain.cell import Cell
from windtunnel.domain.events import Kind
from windtunnel.domain.outcome import Reason
from windtunnel.errors import AttemptFault
from windtunnel.host.clock import monotonic
from windtunnel.steps.bench import Bench

__all__ = ["Phases"]


@dataclass
class Phases:
    """Durations in seconds by phase name, in the order they ran. `silent`: no events (preflight checks)."""

    bench: Bench
    cell: Cell
    attempt: int
    silent: bool = False
    durations: dict[str, float] = field(default_factory=dict)

    @asynccontextmanager
    async def __call__(self, name: str, timeout_s: float | None) -> AsyncIterator[None]:
        """Run the body as a phase. Raises AttemptFault(engine_error) when it outlives its time-out."""
        if not self.silent:
            self.bench.journal.event(Kind.ATTEMPT_PHASE, cell=self.cell.id, attempt=self.attempt, phase=name)
        began = monotonic()
        limit = asyncio.timeout(timeout_s)
        try:
            async with limit:
                yield
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise AttemptFault(Reason.ENGINE_ERROR, f"phase {name} took more than {timeout_s:g} s") from error
        finally:
            self.durations[name] = round(self.durations.get(name, 0.0) + monotonic() - began, 4)
