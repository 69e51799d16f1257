"""From the verifier's output files to a grade, or to the reason why there is none.

Only `reward.json` (wins) or `reward.txt` at the top of the verifier's own mount count: never a file elsewhere, never
the exit code. Source: the Harbor verifier contract; DeepSWE's `reward.txt` of -1 is its crash sign and out of range.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any

import msgspec

from windtunnel.domain.outcome import Reason
from windtunnel.domain.reports import Report, read_report
from windtunnel.domain.result import TestCounts

__all__ = ["GRADE_FILES", "Graded", "Reward", "Ungraded", "grade", "read_reward", "read_tests"]

GRADE_FILES = ("reward.json", "reward.txt")
_MAX_REWARD_BYTES = 256 * 1024
_MAX_KEYS = 200
_MAX_KEY_LENGTH = 200
_NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")


class Reward(msgspec.Struct, frozen=True, kw_only=True):
    """`score`: key `reward`. `binary`: 1 when score >= 1. `partial`: key `partial`, else the score.
    `detail`: all keys, finite numbers. `source`: the file."""

    score: float
    binary: int
    partial: float
    detail: dict[str, float]
    source: str


class Ungraded(msgspec.Struct, frozen=True, kw_only=True):
    """No grade: the cell is invalid for this reason, never a 0."""

    reason: Reason
    detail: str


class Graded(msgspec.Struct, frozen=True, kw_only=True):
    """A grade. `detail`: the reward's keys, with `apply_failed` when the verifier could not apply the patch.
    `tests` None: no readable report. `notes`: one line each about reports that could not be read."""

    reward_binary: int
    reward_partial: float
    detail: dict[str, float]
    tests: TestCounts | None
    apply_failed: bool = False
    source: str = ""
    report_files: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def grade(files: Mapping[str, bytes], *, reward_range: tuple[float, float] = (0.0, 1.0)) -> Graded | Ungraded:
    """Grade from the files of the verifier's mount (relative name -> bytes).

    A report in which no test ran is `no_tests_ran`, unless the verifier says `apply_failed`: then it had nothing to
    test and its reward stands.
    """
    reward = read_reward(files, reward_range=reward_range)
    if isinstance(reward, Ungraded):
        return reward
    report = read_report(files)
    apply_failed = bool(reward.detail.get("apply_failed"))
    if _nothing_ran(report) and not apply_failed:
        return Ungraded(reason=Reason.NO_TESTS_RAN, detail=f"{', '.join(report.files)}: no test passed or failed")
    return Graded(
        reward_binary=reward.binary,
        reward_partial=reward.partial,
        detail=reward.detail,
        tests=report.counts,
        apply_failed=apply_failed,
        source=reward.source,
        report_files=report.files,
        notes=report.problems,
    )


def read_tests(files: Mapping[str, bytes]) -> TestCounts | None:
    """Counts of the verifier's CTRF or JUnit report; None when there is no readable one."""
    return read_report(files).counts


def read_reward(files: Mapping[str, bytes], *, reward_range: tuple[float, float] = (0.0, 1.0)) -> Reward | Ungraded:
    """The reward of the top-level file, checked: finite numbers, a flat map, score and partial in range."""
    source = next((name for name in GRADE_FILES if name in files), None)
    if source is None:
        elsewhere = sorted(name for name in files if name.rsplit("/", 1)[-1] in GRADE_FILES)[:3]
        hint = f" ({', '.join(elsewhere)} is not at the top)" if elsewhere else ""
        return Ungraded(reason=Reason.REWARD_MISSING, detail=f"neither reward.json nor reward.txt was written{hint}")
    try:
        values = _flat_map(files[source]) if source == "reward.json" else {"reward": _one_number(files[source])}
    except ValueError as error:
        return Ungraded(reason=Reason.REWARD_MALFORMED, detail=f"{source}: {error}")
    score = values["reward"]
    partial = values.get("partial", score)
    low, high = reward_range
    for key, value in (("reward", score), ("partial", partial)):
        if not low <= value <= high:
            detail = f"{source}: {key} {value:g} is outside {low:g} to {high:g}"
            return Ungraded(reason=Reason.REWARD_OUT_OF_RANGE, detail=detail)
    return Reward(score=score, binary=int(score >= 1), partial=partial, detail=values, source=source)


def _nothing_ran(report: Report) -> bool:
    return report.counts is not None and report.counts.passed + report.counts.failed == 0


def _flat_map(data: bytes) -> dict[str, float]:
    """`{"reward": 1, ...}` with finite numbers only. Raises ValueError."""
    try:
        found = json.loads(_text(data), object_pairs_hook=_no_duplicates, parse_constant=_no_constant)
    except RecursionError as error:
        raise ValueError("nested too deep") from error
    if not isinstance(found, dict):
        raise ValueError(f"expected a map of numbers, found {type(found).__name__}")
    if len(found) > _MAX_KEYS or any(len(key) > _MAX_KEY_LENGTH for key in found):
        raise ValueError(f"more than {_MAX_KEYS} keys, or a key longer than {_MAX_KEY_LENGTH} characters")
    if "reward" not in found:
        raise ValueError("it has no key 'reward'")
    return {key: _finite(value, key) for key, value in found.items()}


def _one_number(data: bytes) -> float:
    """One number on one line; blank space around it is fine. Raises ValueError."""
    text = _text(data).strip()
    if not _NUMBER.fullmatch(text):
        raise ValueError(f"expected one number, found {text[:40]!r}")
    return _finite(float(text), "reward")


def _finite(value: object, key: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{key[:40]!r} is {type(value).__name__}, not a number")
    try:
        number = float(value)
    except OverflowError as error:
        raise ValueError(f"{key[:40]!r} is not finite") from error
    if not math.isfinite(number):
        raise ValueError(f"{key[:40]!r} is not finite")
    return number + 0.0  # -0.0 becomes 0.0


def _text(data: bytes) -> str:
    if len(data) > _MAX_REWARD_BYTES:
        raise ValueError(f"bigger than {_MAX_REWARD_BYTES} bytes")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError("not UTF-8 text") from error


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key occurs twice")
    return found


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a finite number")
