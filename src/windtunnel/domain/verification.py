"""What verify says: one claim a line, each with the file it rests on, and the line that sums them up."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec

from windtunnel.domain.plain_text import plain_line

__all__ = ["Claim", "Tally", "VerifyReport", "claim", "sum_up"]

Stage = Literal["launch", "ended"]
_EVIDENCE_MAX = 50
_FAULTS_MAX = 100
_TEXT_MAX = 600


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """One claim. `evidence`: files, first the one to open; `evidence_files` counts them all. `found` of a claim that
    holds says what was recomputed; it never repeats another program's word."""

    name: str
    passed: bool
    expected: str
    found: str
    evidence: tuple[str, ...]
    evidence_files: int


class VerifyReport(msgspec.Struct, frozen=True, kw_only=True):
    """`verify.json`. `stage` launch: the run goes on or is paused, and only what can hold by now was asked.
    `finished`: planned cells with a result in the tree, reused ones included. `summary`: the last line of the text."""

    schemaVersion: int = 1
    run_id: str
    planIdentity: str
    stage: Stage
    finished: int
    planned: int
    claims: tuple[Claim, ...]
    passed: bool
    summary: str
    checked_at: str


def claim(name: str, passed: bool, *, expected: str, found: str, evidence: Iterable[object]) -> Claim:
    """A claim; its evidence files are listed once each, the first fifty by name."""
    files = list(dict.fromkeys(str(path) for path in evidence))
    return Claim(
        name=name,
        passed=passed,
        expected=_told(expected),
        found=_told(found),
        evidence=tuple(files[:_EVIDENCE_MAX]),
        evidence_files=len(files),
    )


def _told(text: str) -> str:
    """One line; it may hold an agent's text."""
    line = plain_line(text)
    return line if len(line) <= _TEXT_MAX else line[: _TEXT_MAX - 1] + "…"


def sum_up(claims: Iterable[Claim], *, stage: Stage, finished: int, planned: int) -> tuple[bool, str]:
    """Whether all hold, and the last line. No claim at all is no PASS."""
    listed = list(claims)
    failed = sum(not item.passed for item in listed)
    if failed or not listed:
        return False, f"FAIL ({failed} of {len(listed)} lines)"
    return True, "PASS" if stage == "ended" else f"PASS (launch; {finished} of {planned} cells so far)"


class Tally:
    """One claim over many cells: one line when all hold, else a line for each that does not (the first hundred)."""

    def __init__(self, name: str, unit: str) -> None:
        self._name, self._unit = name, unit
        self._held = 0
        self._first: object | None = None
        self._faults: list[Claim] = []
        self._unlisted = 0

    def held(self, evidence: object) -> None:
        """It holds here; the first evidence file is kept as the one to show."""
        self._held += 1
        self._first = evidence if self._first is None else self._first

    def fault(self, which: str, *, expected: str, found: str, evidence: Iterable[object]) -> None:
        """It does not hold for the cell (or whatever `which` names)."""
        if len(self._faults) < _FAULTS_MAX:
            name = f"{self._name}, {which}"
            self._faults.append(claim(name, False, expected=expected, found=found, evidence=evidence))
        else:
            self._unlisted += 1

    def claims(self) -> list[Claim]:
        """Nothing looked at is no claim."""
        if self._faults:
            more = f"{self._unlisted} more {self._unit} where it does not hold"
            first = self._faults[0].evidence
            rest = claim(self._name, False, expected="none", found=more, evidence=first)
            return [*self._faults, *([rest] if self._unlisted else [])]
        if not self._held:
            return []
        found = f"{self._held} {self._unit}"
        held = claim(self._name, True, expected="", found=found, evidence=[self._first])
        return [msgspec.structs.replace(held, evidence_files=self._held)]
