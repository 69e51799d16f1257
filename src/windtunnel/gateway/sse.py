"""Server-sent events as they arrive: bytes in any pieces go in, the data of whole events comes out."""

from __future__ import annotations

__all__ = ["EventStream"]

_LIMIT = 32 * 1024 * 1024  # one event; more is not read, the bytes still pass


class EventStream:
    """Splits a stream into events, whose lines end with `\\n` or `\\r\\n`. How the bytes were cut does not matter.

    `overflowed`: an event was too long to read, nothing after it is given out.
    """

    def __init__(self) -> None:
        self._rest = b""
        self._data: list[bytes] = []
        self._held = 0
        self.overflowed = False

    def feed(self, chunk: bytes) -> list[bytes]:
        """The data of the events that this piece completed."""
        if self.overflowed:
            return []
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        events = [event for line in lines if (event := self._line(line)) is not None]
        if len(self._rest) + self._held > _LIMIT:
            self.overflowed, self._rest, self._data = True, b"", []
        return events

    def finish(self) -> list[bytes]:
        """The data of an event that the end of the stream cut before its blank line."""
        rest, self._rest = self._rest, b""
        events = [self._line(rest), self._line(b"")]
        return [event for event in events if event is not None]

    def _line(self, line: bytes) -> bytes | None:
        line = line.removesuffix(b"\r")
        if line.startswith(b"data:"):
            data = line[5:].removeprefix(b" ")
            self._data.append(data)
            self._held += len(data)
        if line or not self._data:
            return None
        event, self._data, self._held = b"\n".join(self._data), [], 0
        return event
