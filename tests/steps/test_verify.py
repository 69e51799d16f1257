"""Verify believes files, not words: a truthful tree passes, and each single lie or damage is named."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from builders import a_plan
from run_trees import RunTree, a_tree, invalid, run_cell, tree_of, written_config, written_plan
from windtunnel.domain.cell import Cell
from windtunnel.domain.contract import Verdict
from windtunnel.domain.digest import to_json, to_line
from windtunnel.domain.events import Kind
from windtunnel.domain.fold import Fold
from windtunnel.domain.manifest import Manifest
from windtunnel.domain.plan import Plan, PreflightPlan, Settings
from windtunnel.domain.result import AttemptRecord, Result
from windtunnel.domain.tracker import tracker_line
from windtunnel.domain.verification import VerifyReport
from windtunnel.domain.wire import CallStarted
from windtunnel.errors import EngineAbsent
from windtunnel.gateway.interface import SecretSearch
from windtunnel.host.clock import utc_now
from windtunnel.steps.verify import report_text, verify, write_report
from windtunnel.store.event_log import read_events
from windtunnel.store.files import read_json, sha256_file
from windtunnel.store.index import rebuild_index
from windtunnel.store.layout import RunDir
from windtunnel.store.results import new_attempt, publish
from windtunnel.store.run_log import RunLog
from windtunnel.store.run_seal import seal_run
from windtunnel.store.sealing import seal

CELL = "t1/a/rep1"


async def nothing_left() -> list[str]:
    return []


def sealed(tree: RunTree) -> RunTree:
    """The tree with a seal over what the test made of it, as whoever told its lies would have left it."""
    seal_run(tree.run, tree.plan.run_id)
    return tree


async def check(tree: RunTree) -> VerifyReport:
    return await verify(tree.run, left=nothing_left)


def failing(report: VerifyReport) -> list[str]:
    return [line for line in report_text(report).split("\n")[:-1] if line.startswith("FAIL ")]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> RunTree:
    return a_tree(tmp_path_factory.mktemp("tree") / "w")


@pytest.fixture
def tree(written: RunTree) -> RunTree:
    """A finished, truthful run; broken in place by a test, mended afterwards from a copy."""
    return written


@pytest.fixture(autouse=True)
def _mended(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """The plan names absolute paths, so that the tree is put back instead of being copied away."""
    if "tree" not in request.fixturenames:
        yield
        return
    tree: RunTree = request.getfixturevalue("written")
    shutil.copytree(tree.root, tmp_path / "kept", symlinks=True)
    yield
    shutil.rmtree(tree.root)
    (tmp_path / "kept").rename(tree.root)


async def test_a_truthful_run_passes_with_a_file_on_every_line(tree: RunTree) -> None:
    report = await check(tree)

    assert report.summary == "PASS"
    assert (report.stage, report.finished, report.planned) == ("ended", 4, 4)
    for claim in report.claims:
        assert claim.evidence and all(Path(path).exists() for path in claim.evidence)


async def test_verify_changes_nothing(tree: RunTree) -> None:
    def state() -> dict[Path, tuple[int, int]]:
        files = (path for path in tree.root.rglob("*") if path.is_file())
        return {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in files}

    before = state()
    await check(tree)

    assert state() == before


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def flip_a_byte(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))


def drop_line(path: Path, number: int) -> None:
    lines = path.read_bytes().splitlines(keepends=True)
    del lines[number]
    path.write_bytes(b"".join(lines))


DAMAGES: dict[str, tuple[Callable[[RunTree], Any], str]] = {
    "a byte of a result": (lambda t: flip_a_byte(t.dir(CELL).result), "result.json"),
    "a torn result": (lambda t: t.dir(CELL).result.write_text('{"schemaVersion":1'), "result.json"),
    "a result gone": (lambda t: t.dir(CELL).result.unlink(), "t1/a/rep1"),
    "a byte of the session": (lambda t: flip_a_byte(t.attempt(CELL).session / "s.jsonl"), "session/s.jsonl"),
    "a byte of the patch": (lambda t: flip_a_byte(t.attempt(CELL).patch), "artifacts/model.patch"),
    "a wire line gone": (lambda t: drop_line(t.attempt(CELL).wire, -1), "wire.ndjson"),
    "all wire records gone": (lambda t: t.attempt(CELL).wire.unlink(), "wire.ndjson"),
    "another reward": (
        lambda t: (t.attempt(CELL).verifier / "reward.json").write_text('{"reward": 0}'),
        "verifier/reward.json",
    ),
    "a reward gone": (lambda t: (t.attempt(CELL).verifier / "reward.json").unlink(), "reward_missing"),
    "a file added": (lambda t: (t.attempt(CELL).logs / "late").write_text("x"), "logs/late"),
    "a seal gone": (lambda t: t.attempt(CELL).manifest.unlink(), "manifest.sha256"),
    "another current": (
        lambda t: (t.dir(CELL).current.unlink(), t.dir(CELL).current.symlink_to("attempts/2")),
        "current is attempts/2",
    ),
    "an attempt nobody started": (lambda t: t.attempt(CELL, 2).root.mkdir(), "attempts"),
    "a foreign attempt record": (lambda t: edit(t.attempt(CELL).record, '"graded"', '"graded "'), "attempt.json"),
    "a secret search gone": (lambda t: t.attempt(CELL).secret_search.unlink(), "secret-search.json"),
    "a secret found": (
        lambda t: t.attempt(CELL).secret_search.write_bytes(
            to_json(SecretSearch(routes=("acme",), files=1, bytes=1, hits=("logs/x: acme, plain",), clean=False))
        ),
        "secret-search.json",
    ),
    "a claim left": (lambda t: t.dir(CELL).claim.write_text("{}"), "claim.json"),
    "an event gone": (lambda t: drop_line(t.run.events, 7), "events.ndjson"),
    "the first event gone": (lambda t: drop_line(t.run.events, 0), "events.ndjson"),
    "two events swapped": (lambda t: _swap(t.run.events, 3, 4), "events.ndjson"),
    "an event of another run": (lambda t: edit(t.run.events, '"run_id":"r1"', '"run_id":"r2"'), "events.ndjson"),
    "a torn event at the end": (lambda t: _append(t.run.events, b'{"seq":99'), "events.ndjson"),
    "an event that is none": (lambda t: edit(t.run.events, "fanout_started", "fan_out"), "events.ndjson"),
    "a tracker line gone": (lambda t: drop_line(t.run.log, -2), "run.log"),
    "a tracker line forged": (
        lambda t: _append(t.run.log, b"2026-12-01T00:00:00.000Z [5/4] t1 / z / rep0  valid reward=1.000 cost=$0.1\n"),
        "run.log",
    ),
    "a master log gone": (lambda t: t.run.log.unlink(), "run.log"),
    "a status count": (lambda t: edit(t.run.status, '"valid": 4', '"valid": 5'), "status.json"),
    "a status gone": (lambda t: t.run.status.unlink(), "status.json"),
    "a status of a newer schema": (lambda t: edit(t.run.status, '"resumes": 0', '"resumes": "many"'), "status.json"),
    "a manifest gone": (lambda t: t.run.manifest.unlink(), "manifest.json"),
    "a manifest of other cells": (lambda t: edit(t.run.manifest, "t1/a/rep1", "t1/a/rep7"), "manifest.json"),
    "an input changed": (lambda t: _append(t.run.inputs / "a" / "system_preamble.md", b"!"), "system_preamble.md"),
    "an input gone": (lambda t: (t.run.inputs / "a" / "system_preamble.md").unlink(), "system_preamble.md"),
    "an input added": (lambda t: (t.run.inputs / "a" / "models.json").write_text("{}"), "models.json"),
    "an input made executable": (lambda t: (t.run.inputs / "a" / "smoke.json").chmod(0o755), "smoke.json"),
    "another confirmation": (lambda t: edit(t.run.confirmation, "sha256:", "sha256:0"), "confirmation.json"),
    "no confirmation": (lambda t: t.run.confirmation.unlink(), "confirmation.json"),
    "a plan gone": (lambda t: t.run.plan.unlink(), "plan.json"),
    "a plan changed": (lambda t: edit(t.run.plan, '"reps": 2', '"reps": 3'), "plan.json"),
    "an index line gone": (lambda t: drop_line(t.index, 0), "results.jsonl"),
    "an index value": (lambda t: edit(t.index, '"reward_partial":1', '"reward_partial":0'), "results.jsonl"),
    "an index gone": (lambda t: t.index.unlink(), "results.jsonl"),
    "a verdict gone": (lambda t: t.dir("t1/a/rep0").verdict.unlink(), "smoke of config a"),
}


def _append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


def _swap(path: Path, a: int, b: int) -> None:
    lines = path.read_bytes().splitlines(keepends=True)
    lines[a], lines[b] = lines[b], lines[a]
    path.write_bytes(b"".join(lines))


@pytest.mark.parametrize("damage", DAMAGES)
async def test_one_damage_fails_and_is_named(tree: RunTree, damage: str) -> None:
    do, named = DAMAGES[damage]
    do(tree)

    report = await check(tree)

    assert not report.passed
    assert re.fullmatch(r"FAIL \(\d+ of \d+ lines\)", report.summary)
    assert any(named in line for line in failing(report))


def forge_result(tree: RunTree, cell_id: str = CELL, **changes: Any) -> Result:
    """A liar with write access everywhere: result, attempt record, seal, event and index all tell the same lie."""
    directory, attempt = tree.dir(cell_id), tree.attempt(cell_id)
    result = msgspec.structs.replace(read_json(directory.result, Result), **changes)
    record = msgspec.structs.replace(
        read_json(attempt.record, AttemptRecord), usage=result.usage, outcome=result.outcome, flags=result.flags
    )
    attempt.record.write_bytes(to_json(record))
    seal(attempt, to_json(result))
    digest = publish(directory, 1, result)
    rewrite_finished(tree, cell_id, reward=result.reward_partial, usage=result.usage, result_sha256=digest)
    rebuild_index(tree.index.parent)
    rebuild(tree)
    return result


def rewrite_finished(tree: RunTree, cell_id: str, **fields: Any) -> None:
    lines = []
    for line in tree.run.events.read_bytes().splitlines():
        event = json.loads(line)
        if event["event"] == Kind.CELL_FINISHED and event["cell"] == cell_id:
            event |= msgspec.to_builtins(fields)
        lines.append(to_line(event))
    tree.run.events.write_bytes(b"".join(lines))


def rebuild(tree: RunTree) -> None:
    """status.json and run.log as the events now have them."""
    fold, lines = Fold(manifest_of_tree(tree)), []
    for event in read_events(tree.run.events).events:
        fold.apply(event)
        text = tracker_line(event, fold.counts)
        lines += [f"{event.ts} {text}\n"] if text else []
    tree.run.status.write_bytes(to_json(fold.status()))
    tree.run.log.write_text("".join(lines))


def manifest_of_tree(tree: RunTree) -> Manifest:
    return read_json(tree.run.manifest, Manifest)


async def test_a_lie_told_everywhere_alike_is_found_in_the_primary_files(tree: RunTree) -> None:
    forge_result(tree, reward_partial=0.5, reward_binary=0)

    assert [line.split(",")[0] for line in failing(await check(sealed(tree)))] == [
        "FAIL reward recomputed from the verifier's own files"
    ]


async def test_usage_that_the_wire_does_not_have_is_found(tree: RunTree) -> None:
    usage = read_json(tree.dir(CELL).result, Result).usage
    forge_result(tree, usage=msgspec.structs.replace(usage, by_role={}))

    (line,) = failing(await check(sealed(tree)))

    assert line.startswith("FAIL usage equals the wire records")
    assert "wire.ndjson" in line


async def test_a_thinking_verdict_that_the_wire_does_not_carry_is_found(tree: RunTree) -> None:
    verdict = read_json(tree.dir(CELL).result, Result).thinking_by_role["executor"]
    forge_result(tree, thinking_by_role={"executor": msgspec.structs.replace(verdict, verdict="proven")})

    (line,) = failing(await check(sealed(tree)))

    assert "expected verdict" not in line  # named with its role
    assert "executor.verdict proven, found executor.verdict consistent" in line


async def test_a_result_of_another_identity_is_found(tree: RunTree) -> None:
    ids = read_json(tree.dir(CELL).result, Result).identities
    forge_result(tree, identities=msgspec.structs.replace(ids, cellIdentity="sha256:0"))

    (line,) = failing(await check(sealed(tree)))

    assert line.startswith("FAIL identity equals the plan's, t1/a/rep1")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"role": "advisor"}, "undeclared acme/advisor"),
        ({"route": "other"}, "undeclared other/executor"),
        ({"model_asked": "model-2"}, "executor asked for model-2, planned model-1"),
    ],
)
async def test_a_call_that_no_role_of_the_plan_made_is_found(tree: RunTree, change: dict[str, str], words: str) -> None:
    wire = tree.attempt(CELL).wire
    first, *rest = wire.read_bytes().splitlines(keepends=True)
    started = msgspec.json.decode(first, type=CallStarted)
    wire.write_bytes(to_line(msgspec.structs.replace(started, **change)) + b"".join(rest))

    assert any(words in line for line in failing(await check(tree)))


async def test_a_forged_verdict_is_judged_again(tree: RunTree) -> None:
    """The word `passed` in a verdict is a claim: the assertions must hold on the evidence."""
    (tree.attempt("t1/a/rep0").session / "s.jsonl").unlink()

    report = await check(tree)

    assert any(line.startswith("FAIL smoke of config a: expected") and "session" in line for line in failing(report))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("passed", False),
        ("config_fingerprint", "sha256:0"),
        ("contract_sha256", "sha256:0"),
        ("subject_bundle", "sha256:0"),
        ("model", "acme/model-2"),
        ("thinking", "low"),
        ("result_sha256", "sha256:0"),
        ("judged_at", "2999-01-01T00:00:00.000Z"),
        ("judged_at", "2020-01-01T00:00:00.000Z"),
        ("run_id", "r0"),
        ("cell", "t1/a/rep1"),
        ("assertions", ()),
    ],
)
async def test_a_verdict_must_be_of_this_config_and_older_than_its_batch(tree: RunTree, field: str, value: Any) -> None:
    path = tree.dir("t1/a/rep0").verdict
    path.write_bytes(to_json(msgspec.structs.replace(read_json(path, Verdict), **{field: value})))

    (line,) = failing(await check(tree))

    assert line.startswith("FAIL smoke of config a")
    assert "smoke-verdict.json" in line


async def test_every_byte_of_a_verdict_counts(tree: RunTree) -> None:
    """A change of one bit anywhere is found, but for the digits of a time that stays while the cell was judged."""
    path = tree.dir("t1/a/rep0").verdict
    data = path.read_bytes()
    digits = data.index(b'"judged_at": "') + len(b'"judged_at": "2026-')
    for at in [n for n in range(0, len(data), 29) if not digits <= n < digits + 20]:
        path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])

        (line,) = failing(await check(tree))

        assert line.startswith("FAIL smoke of config a")
        assert "smoke-verdict.json" in line


async def test_fan_out_before_smoke_is_found(tree: RunTree) -> None:
    events = [json.loads(line) for line in tree.run.events.read_bytes().splitlines()]
    fan_out = next(e for e in events if e["event"] == "fanout_started")
    events.remove(fan_out)
    events.insert(1, fan_out)
    tree.run.events.write_bytes(b"".join(to_line(e | {"seq": n}) for n, e in enumerate(events, 1)))
    rebuild(tree)

    (line,) = failing(await check(sealed(tree)))

    assert line.startswith("FAIL fan-out came after smoke: expected smoke of each config first")


async def test_what_is_left_in_the_environment_is_named(tree: RunTree) -> None:
    async def one() -> list[str]:
        return ["dsw-a-t1-r0-abc"]

    async def absent() -> list[str]:
        raise EngineAbsent("docker", "no socket", "Start it")

    for left, words in ((one, "dsw-a-t1-r0-abc"), (absent, "no socket"), (None, "was not asked")):
        (line,) = failing(await verify(tree.run, left=left))
        assert words in line


# A live process, a fresh heartbeat, an exit 0 and the state `completed` are never evidence.


async def test_the_state_completed_is_no_evidence(tmp_path: Path) -> None:
    """Cells are pending, and both status.json and the log say that the run is completed."""
    tree = a_tree(tmp_path / "w", until="smoke")
    with RunLog.open(tree.run, manifest_of_tree(tree)) as log:
        log.event(Kind.RUN_COMPLETED)
    rebuild_index(tree.index.parent)

    report = await check(tree)

    assert report.stage == "ended"
    assert any(line.startswith("FAIL every planned cell is valid, t1/a/rep1") for line in failing(report))


async def test_a_status_that_says_completed_is_no_evidence(tmp_path: Path) -> None:
    tree = a_tree(tmp_path / "w", until="running")
    edit(tree.run.status, '"state": "running"', '"state": "completed"')

    report = await check(tree)

    assert report.stage == "launch"
    assert any(line.startswith("FAIL status.json") for line in failing(report))


async def test_an_exit_0_is_no_evidence(tree: RunTree) -> None:
    """The agent's exit is 0 and the cell says valid; its own tests say otherwise."""
    (tree.attempt(CELL).verifier / "reward.json").write_text('{"reward": 0}')
    seal(tree.attempt(CELL), tree.dir(CELL).result.read_bytes())

    (line,) = failing(await check(tree))

    assert "reward_binary 1" in line and "reward_binary 0" in line


async def test_a_live_process_and_a_fresh_heartbeat_are_no_evidence(tmp_path: Path) -> None:
    """The owner lives (it is this process), the heartbeat is now; a finished cell's evidence is gone."""
    tree = a_tree(tmp_path / "w", until="running")
    tree.attempt("t1/b/rep0").wire.unlink()
    status = read_json(tree.run.status, dict)
    tree.run.status.write_bytes(to_json(status | {"heartbeat_at": utc_now(), "pid": os.getpid()}))

    report = await check(tree)

    assert not report.passed
    assert any("t1/b/rep0" in line for line in failing(report))


async def test_no_word_of_a_dead_process_or_an_old_heartbeat_makes_a_true_claim_false(tree: RunTree) -> None:
    status = read_json(tree.run.status, dict)
    tree.run.status.write_bytes(to_json(status | {"heartbeat_at": "2020-01-01T00:00:00.000Z"}))

    assert (await check(tree)).passed


@pytest.mark.parametrize(("until", "finished"), [("smoke", 2), ("running", 3), ("paused", 3)])
async def test_a_run_that_goes_on_passes_for_what_can_hold_by_now(tmp_path: Path, until: str, finished: int) -> None:
    report = await check(a_tree(tmp_path / "w", until=until))

    assert report.summary == f"PASS (launch; {finished} of 4 cells so far)"


async def test_a_run_that_goes_on_fails_for_what_does_not_hold(tmp_path: Path) -> None:
    tree = a_tree(tmp_path / "w", until="running")
    flip_a_byte(tree.attempt("t1/a/rep0").patch)

    report = await check(tree)

    assert report.stage == "launch"
    assert any("model.patch" in line for line in failing(report))


async def test_an_invalid_cell_on_an_ended_run_is_not_ok(tmp_path: Path) -> None:
    tree = a_tree(tmp_path / "w", until="smoke")
    with RunLog.open(tree.run, manifest_of_tree(tree)) as log:
        log.event(Kind.FANOUT_STARTED, cells=2)
        run_cell(tree, log, tree.cells["t1/a/rep1"])
        run_cell(tree, log, tree.cells["t1/b/rep1"], invalid())
        log.event(Kind.RUN_COMPLETED)
    rebuild_index(tree.index.parent)

    (line,) = failing(await check(sealed(tree)))

    assert line.startswith("FAIL every planned cell is valid, t1/b/rep1: expected valid, found invalid: provider_error")


async def test_a_config_whose_preflight_was_disabled_is_no_pass(tmp_path: Path) -> None:
    settings = Settings(environment="plain", reps=1, preflight="disabled")
    plan = msgspec.structs.replace(written_plan(tmp_path / "w", settings=settings), preflight=())

    first, second = failing(await check(tree_of(tmp_path / "w", plan)))

    assert "no smoke: preflight disabled by the plan" in first
    assert "smoke of config b" in second


def next_plan(tree: RunTree, **changes: Any) -> Plan:
    """A second run of the same tree and configs: rep 0 and 1 are there already, rep 2 is new."""
    settings = msgspec.structs.replace(tree.plan.settings, reps=3)
    wider = a_plan(tree.root, configs=tree.plan.configs, tasks=tree.plan.tasks, settings=settings, run_id="r2")
    cells = tuple(
        msgspec.structs.replace(c, state="reuse", result_sha256=sha256_file(Path(c.result_path)))
        if Path(c.result_path).exists()
        else c
        for c in wider.cells
    )
    paths = msgspec.structs.replace(wider.paths, run_dir=str(Path(wider.paths.state_root) / "r2"))
    return msgspec.structs.replace(wider, cells=cells, preflight=(), paths=paths, **changes)


async def test_an_earlier_runs_verdict_is_cited_by_path_and_hash(tree: RunTree) -> None:
    later = tree_of(tree.root, next_plan(tree))

    report = await check(later)

    assert report.passed, report_text(report)
    (cited,) = [c for c in report.claims if c.name == "smoke of config a"]
    assert sha256_file(tree.dir("t1/a/rep0").verdict) in cited.found
    assert cited.evidence[0] == str(tree.dir("t1/a/rep0").verdict)


async def test_a_reused_result_that_is_another_one_is_found(tree: RunTree) -> None:
    later = tree_of(tree.root, next_plan(tree))
    edit(tree.dir(CELL).result, '"exit": 0', '"exit": 1')

    report = await check(later)

    assert any(line.startswith("FAIL reused result is the one that was planned, t1/a/rep1") for line in failing(report))


async def test_the_former_run_still_passes_when_a_later_one_judged_its_smoke_cell_again(tree: RunTree) -> None:
    entries = tuple(PreflightPlan(cell=Cell(task="t1", config=name, rep=0), stored=True) for name in "ab")
    plan = next_plan(tree)
    later = tree_of(tree.root, msgspec.structs.replace(plan, preflight=entries))

    assert (await check(later)).passed
    assert (await check(tree)).passed
    assert tree.dir("t1/a/rep0").verdict.with_name("smoke-verdict.1.json").exists()


async def test_a_crash_between_an_event_and_its_tracker_line_is_no_lie(tmp_path: Path) -> None:
    """The line of the last event before a resume can be lacking; any other cannot."""
    tree = a_tree(tmp_path / "w", until="paused")
    lines = tree.run.log.read_text().splitlines(keepends=True)
    tree.run.log.write_text("".join(lines[:-1]))
    with RunLog.open(tree.run, manifest_of_tree(tree)) as log:
        log.event(Kind.RUN_RESUMED)
        run_cell(tree, log, tree.cells["t1/b/rep1"])
        log.event(Kind.RUN_COMPLETED)
    rebuild_index(tree.index.parent)

    assert failing(await check(sealed(tree))) == []

    drop_line(tree.run.log, -2)
    assert len(failing(await check(sealed(tree)))) == 1


async def test_a_crash_before_an_attempts_first_event_is_no_hidden_attempt(tmp_path: Path) -> None:
    """Its directory is there and empty. With anything in it, it is an attempt that the events do not tell of."""
    tree = a_tree(tmp_path / "w", until="paused")
    cell = tree.dir("t1/b/rep1")
    cell.root.mkdir(parents=True)
    new_attempt(cell)
    with RunLog.open(tree.run, manifest_of_tree(tree)) as log:
        log.event(Kind.RUN_RESUMED)
        run_cell(tree, log, tree.cells["t1/b/rep1"])
        log.event(Kind.RUN_COMPLETED)
    rebuild_index(tree.index.parent)

    assert failing(await check(sealed(tree))) == []

    cell.attempt(1).wire.write_bytes(b"")
    assert any("attempts in the tree" in line for line in failing(await check(sealed(tree))))


async def test_a_subject_without_a_model_role_passes_without_calls(tmp_path: Path) -> None:
    config = written_config(tmp_path / "w", "a", roles=(), routes=(), contract={})

    report = await check(a_tree(tmp_path / "w", configs=(config,), model=None, thinking="off"))

    assert report.passed, report_text(report)


async def test_the_report_is_kept_as_it_was_printed(tree: RunTree) -> None:
    report = await check(tree)

    write_report(tree.run, report)

    assert read_json(tree.run.verify, VerifyReport) == report


async def test_a_run_without_a_plan_is_a_report_not_a_crash(tmp_path: Path) -> None:
    (tmp_path / "r9").mkdir()

    report = await verify(RunDir(tmp_path / "r9"), left=nothing_left)

    assert not report.passed


async def test_text_of_an_agent_cannot_colour_the_report(tree: RunTree) -> None:
    started = msgspec.json.decode(tree.attempt(CELL).wire.read_bytes().splitlines()[0], type=CallStarted)
    forged = to_line(msgspec.structs.replace(started, role="\x1b[32mok\nPASS"))
    _append(tree.attempt(CELL).wire, forged)

    text = report_text(await check(tree))

    assert "\x1b" not in text
    assert "\nPASS" not in text
