"""Evidence that was touched after the run never passes: verify ends with 2 and names the file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from workspace import Planned, Workspace, has_passed, script, solves

from conftest import open_workspace


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Workspace, Planned]]:
    """A run that verified. Every test puts back what it changed."""
    for workspace in open_workspace(tmp_path_factory.mktemp("tamper"), "plain"):
        smoke = {"minResultValues": {"usage.total.calls": 2}, "requireFiles": ["session/loop.jsonl"]}
        workspace.config("a", script(solves()), {"system_preamble.md": "Be careful.\n", "smoke.json": smoke})
        workspace.task("one")
        plan, done = workspace.planned_and_run("--reps", "2")
        assert done.returncode == 0, done.stderr
        has_passed(workspace.verify())
        yield workspace, plan


def _flip(data: bytes) -> bytes:
    """One bit of the byte in the middle."""
    middle = len(data) // 2
    return data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]


def _swap(old: bytes, new: bytes) -> Callable[[bytes], bytes]:
    def change(data: bytes) -> bytes:
        assert old in data
        return data.replace(old, new, 1)

    return change


def _cut_line(number: int) -> Callable[[bytes], bytes]:
    def change(data: bytes) -> bytes:
        lines = data.splitlines(keepends=True)
        del lines[number]
        return b"".join(lines)

    return change


def _without(text: bytes) -> Callable[[bytes], bytes]:
    def change(data: bytes) -> bytes:
        assert text in data
        return b"".join(line for line in data.splitlines(keepends=True) if text not in line)

    return change


def _drop(_: bytes) -> None:
    return None


_CELL = [
    ("result.json", _flip),
    ("result.json", _swap(b'"reward_binary": 1', b'"reward_binary": 0')),
    ("result.json", _swap(b'"calls": 2', b'"calls": 3')),
    ("result.json", _swap(b'"wall_s": ', b'"wall_s":  ')),
    ("attempts/1/wire.ndjson", _flip),
    ("attempts/1/wire.ndjson", _swap(b'"output":', b'"output":1')),
    ("attempts/1/wire.ndjson", _cut_line(-1)),
    ("attempts/1/wire.ndjson", _drop),
    ("attempts/1/verifier/reward.json", _flip),
    ("attempts/1/verifier/reward.json", _swap(b"1", b"0")),
    ("attempts/1/verifier/reward.json", _swap(b"1", b"1 ")),
    ("attempts/1/verifier/reward.json", _drop),
    ("attempts/1/artifacts/model.patch", _flip),
    ("attempts/1/artifacts/model.patch", _drop),
    ("attempts/1/attempt.json", _flip),
    ("attempts/1/session/loop.jsonl", _flip),
    ("attempts/1/secret-search.json", _swap(b'"clean": true', b'"clean": false')),
    ("attempts/1/manifest.sha256", _flip),
    ("attempts/1/manifest.sha256", _drop),
    ("smoke-verdict.json", _flip),
    ("smoke-verdict.json", _swap(b'"passed": true', b'"passed": false')),
]
_RUN = [
    ("inputs/a/system_preamble.md", _flip),
    ("inputs/a/smoke.json", _swap(b"2", b"1")),
    ("inputs/a/replay.json", _drop),
    ("events.ndjson", _cut_line(3)),
    ("events.ndjson", _cut_line(-1)),
    ("events.ndjson", _flip),
    ("plan.json", _flip),
    ("confirmation.json", _swap(b"sha256:", b"sha256:0")),
    ("confirmation.json", _drop),
    ("manifest.json", _flip),
    ("status.json", _swap(b'"valid": 2', b'"valid": 3')),
    ("status.json", _drop),
    ("run.log", _without(b"fan-out began")),
]


def _fails_and_names(finished: tuple[Workspace, Planned], path: Path, change: Callable[[bytes], bytes | None]) -> None:
    workspace, _ = finished
    before = path.read_bytes()
    after = change(before)
    assert after != before
    try:
        path.unlink() if after is None else path.write_bytes(after)
        done = workspace.verify()
    finally:
        path.write_bytes(before)

    failed = [line for line in done.stdout.splitlines() if line.startswith("FAIL ")]
    assert done.returncode == 2, f"{path.name} was changed, and verify passed"
    assert "Traceback" not in done.stderr
    assert done.stdout.splitlines()[-1].startswith("FAIL")
    assert any(path.name in line for line in failed), failed


@pytest.mark.parametrize(("path", "change"), _CELL, ids=range(len(_CELL)))
def test_a_touched_file_of_a_cell_fails_verify_by_name(
    finished: tuple[Workspace, Planned], path: str, change: Callable[[bytes], bytes | None]
) -> None:
    _, plan = finished
    smoke = next(p for p in plan.results if (p.parent / "smoke-verdict.json").exists())

    _fails_and_names(finished, smoke.parent / path, change)


@pytest.mark.parametrize(("path", "change"), _RUN, ids=range(len(_RUN)))
def test_a_touched_file_of_the_run_fails_verify_by_name(
    finished: tuple[Workspace, Planned], path: str, change: Callable[[bytes], bytes | None]
) -> None:
    _, plan = finished

    _fails_and_names(finished, plan.run_dir / path, change)


def test_a_config_without_its_verdict_fails(finished: tuple[Workspace, Planned]) -> None:
    workspace, plan = finished
    verdict = next(path.parent / "smoke-verdict.json" for path in plan.results)
    kept = verdict.rename(verdict.with_name("elsewhere"))
    try:
        done = workspace.verify()
    finally:
        kept.rename(verdict)

    assert done.returncode == 2
    assert "FAIL smoke of config a: expected a passed verdict in the tree, found no verdict" in done.stdout


def test_the_index_is_checked_against_the_tree(finished: tuple[Workspace, Planned]) -> None:
    workspace, _ = finished
    [index] = (workspace.root / "results").glob("*/*/results.jsonl")

    _fails_and_names(finished, index, _swap(b'"reward_partial":1', b'"reward_partial":0'))


def test_an_extra_file_in_an_attempt_fails_verify(finished: tuple[Workspace, Planned]) -> None:
    workspace, plan = finished
    extra = plan.result().parent / "attempts/1/verifier/extra.txt"
    extra.write_text("put there later")
    try:
        done = workspace.verify()
    finally:
        extra.unlink()

    assert done.returncode == 2
    assert "extra.txt" in done.stdout


def test_words_that_only_claim_success_change_nothing(finished: tuple[Workspace, Planned]) -> None:
    """The stage `completed` in status.json is no evidence: an event log without cells fails."""
    _, plan = finished

    _fails_and_names(finished, plan.run_dir / "events.ndjson", lambda data: data.splitlines(keepends=True)[0])


def test_the_untouched_run_still_passes(finished: tuple[Workspace, Planned]) -> None:
    has_passed(finished[0].verify())
