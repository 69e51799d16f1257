"""Close an attempt that did not come to its own end: killed with its supervisor, or stopped by the operator.

It keeps its directory; its usage is counted from its wire records; its files are searched and sealed like any others.
"""

from __future__ import annotations

import asyncio

import msgspec

from windtunnel.domain.events import Kind
from windtunnel.domain.outcome import Outcome, Reason
from windtunnel.domain.result import AttemptRecord
from windtunnel.errors import AttemptFault
from windtunnel.host.clock import utc_now
from windtunnel.steps.account import search_for_secrets, used_until_cut
from windtunnel.steps.bench import Bench
from windtunnel.store.layout import AttemptDir
from windtunnel.store.results import seal, write_attempt

__all__ = ["close_attempt"]


async def close_attempt(bench: Bench, attempt: AttemptDir, record: AttemptRecord, *, told: bool) -> None:
    """Finish what is left of an attempt: outcome, usage, secret search, its event unless `told`, the seal."""
    outcome = record.outcome or Outcome.of(Reason.CONTAINER_LOST, "the supervisor ended while this attempt ran")
    if record.outcome is None or record.usage is None:
        record = msgspec.structs.replace(
            record, outcome=outcome, finished_at=record.finished_at or utc_now(), usage=used_until_cut(attempt)
        )
        write_attempt(attempt, record)
    if not attempt.secret_search.exists():
        try:
            await search_for_secrets(bench, f"{record.cell}#{record.attempt}", attempt)
        except AttemptFault as fault:
            bench.journal.line(f"attempt {record.attempt} of {record.cell} could not be searched: {fault.message}")
    if not told:
        facts = {"status": outcome.status, "reason": outcome.reason, "detail": outcome.detail, "usage": record.usage}
        bench.journal.event(Kind.ATTEMPT_FINISHED, cell=record.cell, attempt=record.attempt, retry=True, **facts)
    await asyncio.to_thread(seal, attempt, None)
