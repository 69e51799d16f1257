"""One model call from its start record to its end record."""

from __future__ import annotations

import logging

import aiohttp

from windtunnel.domain.wire import CallEnded, CallStarted, EndedBy
from windtunnel.gateway.chat import ChatReader, Reading
from windtunnel.gateway.records import WireLog
from windtunnel.gateway.secrets import Secrets
from windtunnel.host.clock import monotonic, utc_now

__all__ = ["Exchange"]

_LOG = logging.getLogger("windtunnel.gateway")


class Exchange:
    """What is known of a call while it lasts. `readable`: it is a chat completions call.

    How it ended is told once, by `ends`: what happens afterwards is only the echo of the first break.
    """

    def __init__(self, log: WireLog, started: CallStarted, secrets: Secrets, *, readable: bool) -> None:
        self._log = log
        self._started = started
        self._secrets = secrets
        self._readable = readable
        self._reader: ChatReader | None = None
        self._sse = False
        self._begin_s = monotonic()
        self._first_s: float | None = None
        self._bytes = 0
        self.status: int | None = None
        self._ended_by: EndedBy | None = None

    def begin(self) -> None:
        """Write the start record. Raises OSError: then nothing may be sent."""
        self._log.append(self._started)

    def answered(self, answer: aiohttp.ClientResponse) -> None:
        """The provider's status and headers have arrived."""
        self.status = answer.status
        self._sse = answer.content_type == "text/event-stream"
        plain = answer.headers.get("Content-Encoding", "identity").lower() == "identity"
        if self._readable and plain:
            self._reader = ChatReader(sse=self._sse)

    def saw(self, chunk: bytes) -> None:
        """A piece of the answer's body passed."""
        self._first_s = self._first_s or monotonic()
        self._bytes += len(chunk)
        if self._reader is not None:
            self._reader.feed(chunk)

    def ends(self, ended_by: EndedBy) -> None:
        """How the call ended; only the first word counts."""
        self._ended_by = self._ended_by or ended_by

    def finish(self) -> CallEnded:
        """Write the end record; a record that cannot be written is logged (the call then counts as unknown)."""
        read = Reading(parsed=False) if self._reader is None else self._reader.finish()
        ended_by = self._ended_by or "upstream_torn"
        if ended_by == "complete" and self._reader is not None and self._sse and not read.whole:
            ended_by = "upstream_torn"  # the stream ended politely, but without a finish reason
        ended = self._record(read, ended_by)
        try:
            self._log.append(ended)
        except OSError as error:
            _LOG.error("%s: the end of %s could not be recorded: %s", self._started.attempt, ended.call, error)
        return ended

    def _record(self, read: Reading, ended_by: EndedBy) -> CallEnded:
        message = read.error_message
        first = self._first_s
        return CallEnded(
            call=self._started.call,
            ts=utc_now(),
            role=self._started.role,
            status=self.status,
            ended_by=ended_by,
            model_served=read.model_served,
            stop_reason=read.stop_reason,
            tokens=read.tokens,
            reasoning_seen=read.reasoning_seen,
            error_code=read.error_code,
            error_message=None if message is None else self._secrets.redact(message),
            ttft_ms=None if first is None else round((first - self._begin_s) * 1000, 1),
            duration_ms=round((monotonic() - self._begin_s) * 1000, 1),
            response_bytes=self._bytes,
            parsed=read.parsed and (self._reader is not None or self.status is None),
        )
