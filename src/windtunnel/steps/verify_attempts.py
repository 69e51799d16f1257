"""Verify the attempts: each one in the tree is one in the events, was searched for secrets, and let go of its cell."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from windtunnel.domain.events import Event, Kind
from windtunnel.domain.plan import Plan
from windtunnel.domain.result import AttemptRecord, Result
from windtunnel.domain.verification import Claim, Tally
from windtunnel.errors import FileDamaged
from windtunnel.gateway.interface import SecretSearch
from windtunnel.steps.verify_cells import SeenCell
from windtunnel.store.files import read_json
from windtunnel.store.layout import AttemptDir

__all__ = ["AttemptAudit"]

_BEGAN = {Kind.ATTEMPT_STARTED, Kind.ATTEMPT_ADOPTED}


@dataclass
class AttemptAudit:
    """Feed it every finished cell (of an ended run: every planned cell) once, then take the claims."""

    plan: Plan
    events: Iterable[Event]
    ended: bool
    begun: dict[str, set[int]] = field(init=False)
    resumed: bool = field(init=False, default=False)
    agree: Tally = field(default_factory=lambda: Tally("attempts in the tree are those of the events", "cells"))
    record: Tally = field(default_factory=lambda: Tally("attempt.json agrees with result.json", "cells"))
    searched: Tally = field(default_factory=lambda: Tally("secret search of the attempt is clean", "attempts"))
    claimed: Tally = field(default_factory=lambda: Tally("nobody holds the cell", "cells"))

    def __post_init__(self) -> None:
        self.begun = defaultdict(set)
        for event in self.events:
            self.resumed = self.resumed or event.event is Kind.RUN_RESUMED
            number = event.fields.get("attempt")
            if event.event in _BEGAN and isinstance(number, int):
                self.begun[str(event.fields.get("cell"))].add(number)

    def add(self, seen: SeenCell) -> None:
        there = dict(_attempts(seen))
        ours = {number for number, record in there.items() if record is None or record.run_id == self.plan.run_id}
        begun, which = self.begun.get(seen.cell.id, set()), seen.cell.id
        ours -= {n for n in ours - begun if self.resumed and _never_began(seen.dir.attempt(n))}
        if ours == begun and set(there) == set(range(1, len(there) + 1)):
            if there:
                self.agree.held(seen.dir.attempt(max(there)).record)
        else:
            found = f"{sorted(there)}, of this run {sorted(ours)}"
            evidence = [seen.dir.attempts, *(seen.dir.attempt(n).record for n in sorted(ours ^ begun))]
            self.agree.fault(which, expected=f"{sorted(begun)} of this run", found=found, evidence=evidence)
        if seen.result is not None:
            self._record(seen, seen.result, there.get(seen.result.attempt))
        published = {seen.result.attempt} if seen.result is not None else set()
        for number in sorted(ours & set(there) | published & set(there)):
            self._search(seen, seen.dir.attempt(number))
        self._claim(seen)

    def claims(self) -> Iterator[Claim]:
        for tally in (self.agree, self.record, self.searched, self.claimed):
            yield from tally.claims()

    def _record(self, seen: SeenCell, result: Result, record: AttemptRecord | None) -> None:
        path = seen.dir.attempt(result.attempt).record
        said = (result.outcome, result.flags, result.usage, result.run_id)
        if record is not None and (record.outcome, record.flags, record.usage, record.run_id) == said:
            self.record.held(path)
            return
        outcome = None if record is None else record.outcome
        found = "no readable record" if record is None else f"{outcome.reason if outcome else 'open'}, or other usage"
        evidence = [path, seen.dir.result]
        self.record.fault(seen.cell.id, expected=str(result.outcome.reason), found=found, evidence=evidence)

    def _search(self, seen: SeenCell, attempt: AttemptDir) -> None:
        which, path = f"{seen.cell.id}#{attempt.root.name}", attempt.secret_search
        try:
            search = read_json(path, SecretSearch)
        except (FileNotFoundError, FileDamaged) as error:
            found = getattr(error, "found", "no such file")
            self.searched.fault(which, expected="a clean search", found=found, evidence=[path])
            return
        if search.clean and not search.hits and not search.unread:
            self.searched.held(path)
        else:
            found = f"{len(search.hits)} hit(s), {len(search.unread)} file(s) not read"
            self.searched.fault(which, expected="a clean search", found=found, evidence=[path])

    def _claim(self, seen: SeenCell) -> None:
        if not self.ended:
            return
        if seen.dir.claim.exists():
            self.claimed.fault(seen.cell.id, expected="no claim.json", found="one", evidence=[seen.dir.claim])
        elif seen.dir.result.exists():
            self.claimed.held(seen.dir.result)


def _attempts(seen: SeenCell) -> Iterator[tuple[int, AttemptRecord | None]]:
    """Every attempt directory by number; None: its record cannot be read."""
    names = seen.dir.attempts.iterdir() if seen.dir.attempts.is_dir() else ()
    for root in sorted(names):
        number = int(root.name) if root.name.isascii() and root.name.isdecimal() else 0
        try:
            yield number, read_json(AttemptDir(root).record, AttemptRecord)
        except (FileNotFoundError, FileDamaged, NotADirectoryError):
            yield number, None


def _never_began(attempt: AttemptDir) -> bool:
    """Cut by a crash between its directory and its first event: no call was made and nothing was written in it."""
    parts = (attempt.box, attempt.logs, attempt.session, attempt.artifacts, attempt.verifier, attempt.initial_context)
    return not attempt.wire.exists() and not any(part.is_dir() and any(part.iterdir()) for part in parts)
