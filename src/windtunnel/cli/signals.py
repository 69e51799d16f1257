"""SIGINT and SIGTERM over the whole life of a `run` command: once drains, twice stops now."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from types import TracebackType

import click

from windtunnel.domain.events import Kind
from windtunnel.errors import Paused
from windtunnel.steps.bench import Drain
from windtunnel.store.run_log import RunLog

__all__ = ["Signalled", "Signals"]

_HANDLED = (signal.SIGINT, signal.SIGTERM)


class Signalled(Paused):
    """Stopped by a signal: exit code 130 for SIGINT, 143 for SIGTERM."""

    def __init__(self, message: str, number: int) -> None:
        super().__init__(message)
        self.exit_code = 128 + number


class Signals:
    """`cancel`: what a second signal stops; None while that would only leave something half done."""

    def __init__(self, log: RunLog) -> None:
        self.drain = Drain()
        self.caught: list[int] = []
        self.cancel: Callable[[], object] | None = None
        self._log = log

    @property
    def last(self) -> int:
        """The signal that an exit code tells of."""
        return self.caught[-1] if self.caught else signal.SIGINT

    def __enter__(self) -> Signals:
        task = asyncio.current_task()
        self.cancel = None if task is None else task.cancel
        for number in _HANDLED:
            asyncio.get_running_loop().add_signal_handler(number, self._on, number)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for number in _HANDLED:
            asyncio.get_running_loop().remove_signal_handler(number)

    def _on(self, number: int) -> None:
        self.caught.append(number)
        name = signal.Signals(number).name
        again = self.drain.asked.is_set()
        try:
            self._log.event(Kind.CONTROL_RECEIVED, control="stop-now" if again else "stop", detail=name)
        except OSError as error:
            click.echo(f"windtunnel: {name} could not be logged: {error.strerror}", err=True)
        self.drain.reason = name
        self.drain.asked.set()
        if not again:
            click.echo(f"{name}: running cells end, no new ones start; again: stop now", err=True)
        elif self.cancel is not None:
            self.cancel()
        else:
            click.echo(f"{name}: already ending; clean-up and verification are on their way", err=True)
