"""Test reports of a verifier: CTRF (JSON) and JUnit (XML), counted from the list of tests, never from a summary.

Everything here is untrusted input: bounded in size, no document type (so no entities) in XML, no trees in memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from xml.parsers import expat

import msgspec

from windtunnel.domain.result import TestCounts

__all__ = ["CTRF_NAMES", "MAX_REPORT_BYTES", "Report", "read_ctrf", "read_junit", "read_report"]

MAX_REPORT_BYTES = 64 * 1024 * 1024
CTRF_NAMES = (
    "ctrf.json",
    "reports/ctrf.json",
    "new-ctrf.json",
    "new_ctrf.json",
    "reports/new-ctrf.json",
    "reports/new_ctrf.json",
)
_SKIPPED = {"skipped", "pending"}
_CHUNK = 1 << 20


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """`files`: where the counts come from. `problems`: reports that could not be read, one line each."""

    counts: TestCounts | None = None
    files: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()


class _CtrfTest(msgspec.Struct):
    status: str


class _CtrfResults(msgspec.Struct):
    tests: list[_CtrfTest]


class _Ctrf(msgspec.Struct):
    results: _CtrfResults


def read_report(files: Mapping[str, bytes]) -> Report:
    """The first CTRF report there is, else all JUnit files at the top and in reports/, summed."""
    problems: list[str] = []
    for name in (name for name in CTRF_NAMES if name in files):
        try:
            return Report(counts=read_ctrf(files[name]), files=(name,), problems=tuple(problems))
        except ValueError as error:
            problems.append(f"{name}: {error}")
    counted: dict[str, TestCounts] = {}
    for name in sorted(name for name in files if _may_be_junit(name)):
        try:
            counted[name] = read_junit(files[name])
        except ValueError as error:
            problems.append(f"{name}: {error}")
    return Report(counts=_sum(counted), files=tuple(counted), problems=tuple(problems))


def read_ctrf(data: bytes) -> TestCounts:
    """Counts of a CTRF report; a status that is none of CTRF's good ones counts as failed. Raises ValueError."""
    _check_size(data)
    try:
        statuses = [test.status for test in msgspec.json.decode(data, type=_Ctrf).results.tests]
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise ValueError(f"not a CTRF report: {error}") from error
    passed = statuses.count("passed")
    skipped = sum(status in _SKIPPED for status in statuses)
    return TestCounts(passed=passed, failed=len(statuses) - passed - skipped, skipped=skipped)


def read_junit(data: bytes) -> TestCounts:
    """Counts of the test cases of a JUnit report. Raises ValueError: not XML, a document type, or another root."""
    _check_size(data)
    parser = expat.ParserCreate()
    count = _JUnitCount()
    parser.StartElementHandler = count.start
    parser.EndElementHandler = count.end
    parser.StartDoctypeDeclHandler = count.refuse
    try:
        for offset in range(0, max(len(data), 1), _CHUNK):
            parser.Parse(data[offset : offset + _CHUNK], offset + _CHUNK >= len(data))
    except expat.ExpatError as error:
        raise ValueError(f"not a JUnit report: {error}") from error
    return count.counts()


class _JUnitCount:
    """Handlers of one pass over a JUnit file: a `testcase` is what its children say about it."""

    def __init__(self) -> None:
        self._stack: list[str] = []
        self._verdict = "passed"
        self._found: list[str] = []

    def start(self, name: str, attributes: dict[str, str]) -> None:
        if not self._stack and name not in {"testsuites", "testsuite"}:
            raise ValueError(f"not a JUnit report: its root is {name[:40]!r}")
        if name == "testcase":
            self._verdict = "skipped" if attributes.get("status") in {"notrun", "disabled", "skipped"} else "passed"
        elif self._stack and self._stack[-1] == "testcase":
            if name in {"failure", "error"}:
                self._verdict = "failed"
            elif name == "skipped" and self._verdict == "passed":
                self._verdict = "skipped"
        self._stack.append(name)

    def end(self, name: str) -> None:
        self._stack.pop()
        if name == "testcase":
            self._found.append(self._verdict)

    def refuse(self, *_: object) -> None:
        raise ValueError("a document type is not allowed in a report")

    def counts(self) -> TestCounts:
        found = self._found
        return TestCounts(passed=found.count("passed"), failed=found.count("failed"), skipped=found.count("skipped"))


def _may_be_junit(name: str) -> bool:
    folder, _, file = name.rpartition("/")
    return file.lower().endswith(".xml") and folder in {"", "reports"}


def _check_size(data: bytes) -> None:
    if len(data) > MAX_REPORT_BYTES:
        raise ValueError(f"bigger than {MAX_REPORT_BYTES} bytes")


def _sum(counted: Mapping[str, TestCounts]) -> TestCounts | None:
    if not counted:
        return None
    values = counted.values()
    return TestCounts(
        passed=sum(c.passed for c in values),
        failed=sum(c.failed for c in values),
        skipped=sum(c.skipped for c in values),
    )
