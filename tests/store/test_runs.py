from __future__ import annotations

import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from run_builders import a_manifest, same, some_usage
from windtunnel.domain.digest import to_json
from windtunnel.domain.events import Kind
from windtunnel.domain.fold import fold
from windtunnel.domain.manifest import Confirmation
from windtunnel.domain.status import Status
from windtunnel.errors import FileDamaged, InputWrong
from windtunnel.host.processes import ProcessId, current
from windtunnel.store.event_log import event_line, last_event, read_events
from windtunnel.store.files import read_json, write_atomic
from windtunnel.store.layout import RunDir
from windtunnel.store.owner import Owner, OwnerLock, read_owner
from windtunnel.store.run_log import RunLog
from windtunnel.store.runs import find_run, list_runs, read_run, rebuild_status

CELL = "t1/a/rep0"


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    return RunDir(tmp_path / "_runs" / "r1")


def a_short_run(run: RunDir) -> None:
    with RunLog.open(run, a_manifest()) as log:
        log.event(Kind.RUN_STARTED)
        log.event(Kind.FANOUT_STARTED, cells=4)
        log.event(Kind.CELL_STARTED, cell=CELL)
        log.event(Kind.ATTEMPT_STARTED, cell=CELL, attempt=1)
        log.event(Kind.CELL_FINISHED, cell=CELL, status="valid", reason="graded", reward=1.0, usage=some_usage())


def python(code: str, *argv: object) -> subprocess.Popen[str]:
    path = os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, argv)],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": path},
    )


def test_events_are_flat_lines_with_a_gapless_seq(run: RunDir) -> None:
    a_short_run(run)
    lines = [json.loads(line) for line in run.events.read_text().splitlines()]

    assert [line["seq"] for line in lines] == [1, 2, 3, 4, 5]
    assert list(lines[4])[:4] == ["seq", "ts", "event", "run_id"]
    assert (lines[4]["cell"], lines[4]["status"], lines[4]["usage"]["total"]["calls"]) == (CELL, "valid", 1)
    assert (lines[0]["pid"], lines[0]["host"]) == (os.getpid(), socket.gethostname())


def test_the_status_on_disk_is_the_fold_of_manifest_and_events(run: RunDir) -> None:
    a_short_run(run)
    stored = read_json(run.status, Status)
    again = fold(a_manifest(), read_events(run.events).events)

    assert same(msgspec.structs.replace(stored, heartbeat_at=None), msgspec.structs.replace(again, heartbeat_at=None))
    run.status.unlink()
    assert same(rebuild_status(run), again)
    assert same(read_json(run.status, Status), again)


def test_the_tracker_says_it_to_people_in_the_log_and_on_the_terminal(run: RunDir) -> None:
    said: list[str] = []
    with RunLog.open(run, a_manifest(), on_line=said.append) as log:
        log.event(Kind.SMOKE_PASSED, config="a", cell=CELL, verdict_path="/v", failed=[])
        log.event(Kind.FANOUT_STARTED, cells=3)
        log.event(Kind.CELL_STARTED, cell=CELL)
        log.event(Kind.CELL_FINISHED, cell=CELL, status="valid", reason="graded", reward=1, cost_usd=0.03, attempts=2)
        log.event(Kind.CELL_FINISHED, cell="t1/b/rep0", status="invalid", reason="container_lost", reward=None)
        log.line("bad \x1b[31mtext\x1b[0m\nsecond\tline\u202e\n\n")

    assert said == [
        "smoke passed: config a, cell t1/a/rep0 (/v)",
        "fan-out began: 3 cells",
        "[1/4] t1 / a / rep0  valid reward=1.000 cost=$0.0300 attempts=2",
        "[2/4] t1 / b / rep0  invalid reason=container_lost cost=unknown",
        "bad text",
        "second line",
    ]
    stamped = run.log.read_text().splitlines()
    assert [line.split(" ", 1)[1] for line in stamped] == said
    assert all(line[:24].endswith("Z") for line in stamped)


@pytest.mark.parametrize("tail", [b'{"seq":6,"ts":"2026', b'{"seq":6}', b"\0\0\0\0", b'{"a":"\xf0\x9f'])
def test_a_torn_tail_is_cut_kept_and_counted_on_every_resume(run: RunDir, tail: bytes) -> None:
    a_short_run(run)
    for start in (1, 2, 3):  # resume, crash, resume, crash, resume
        with run.events.open("ab") as file:
            file.write(tail)
        assert read_run(run).torn_bytes == len(tail)
        with RunLog.open(run, a_manifest()) as log:
            assert log.torn_bytes == len(tail)
            log.event(Kind.RUN_RESUMED)
        state = read_run(run)
        assert [event.seq for event in state.events] == list(range(1, 6 + start))
        assert not state.gaps
        assert state.status is not None and state.status.torn_bytes == start * len(tail)
        assert run.events.with_name("events.ndjson.torn").read_bytes() == (tail + b"\n") * start


def test_a_missing_line_end_never_joins_two_events(run: RunDir) -> None:
    a_short_run(run)
    data = run.events.read_bytes()
    run.events.write_bytes(data[:-1])
    with RunLog.open(run, a_manifest()) as log:
        log.event(Kind.RUN_RESUMED)
    lines = run.events.read_bytes().splitlines()

    assert [json.loads(line)["seq"] for line in lines] == [1, 2, 3, 4, 5]
    assert b"}{" not in run.events.read_bytes()


def test_a_torn_first_line_before_any_manifest_starts_clean(run: RunDir) -> None:
    run.root.mkdir(parents=True)
    run.events.write_bytes(b'{"seq":1,"ts"')
    with RunLog.open(run, a_manifest()) as log:
        assert log.event(Kind.RUN_STARTED).seq == 1


def test_the_manifest_is_written_once_and_another_one_is_refused(run: RunDir) -> None:
    a_short_run(run)
    before = run.manifest.read_bytes()
    with RunLog.open(run, msgspec.structs.replace(a_manifest(), created_at="2027-01-01T00:00:00.000Z")) as log:
        assert log.manifest.created_at.startswith("2026")
    assert run.manifest.read_bytes() == before
    with pytest.raises(FileDamaged, match="it is of run r1"):
        RunLog.open(run, a_manifest(run_id="r2"))


@pytest.mark.parametrize(
    ("damage", "found"),
    [
        (lambda lines: [*lines[:2], *lines[3:]], "line 3: seq 4 follows 2"),
        (lambda lines: [lines[0], b"{broken", *lines[1:]], "line 2 is no event"),
        (lambda lines: [lines[0], lines[1].replace(b'"r1"', b'"r9"'), *lines[2:]], "line 2: of run 'r9', not 'r1'"),
        (lambda lines: [lines[0], lines[1].replace(b"fanout_started", b"new_kind"), *lines[2:]], "line 2 is no event"),
    ],
)
def test_a_log_that_cannot_be_continued_is_refused_and_still_read(run: RunDir, damage: Any, found: str) -> None:
    a_short_run(run)
    lines = run.events.read_bytes().splitlines()
    run.events.write_bytes(b"".join(line + b"\n" for line in damage(lines)))

    with pytest.raises(FileDamaged, match=r"events\.ndjson"):
        RunLog.open(run, a_manifest())
    state = read_run(run)
    assert state.gaps[0].startswith(found)
    assert state.events and any(found in problem for problem in state.problems)


def test_what_is_no_json_is_never_written_and_costs_no_number(run: RunDir) -> None:
    with RunLog.open(run, a_manifest()) as log:
        for fields in ({"reward": float("nan")}, {"seq": 1}, {"run_id": "x"}):
            with pytest.raises(ValueError):
                log.event(Kind.CELL_FINISHED, **fields)
        log.event(Kind.RUN_FAILED, reason="bug", detail="lone \ud800 surrogate")
        log.event(Kind.RUN_RESUMED)
    state = read_run(run)

    assert [event.seq for event in state.events] == [1, 2]
    assert state.events[0].fields["detail"] == "lone \ud800 surrogate"
    assert b"\\ud800" in run.events.read_bytes()


def test_status_is_written_at_once_for_a_stage_and_else_at_most_once_a_second(run: RunDir) -> None:
    with RunLog.open(run, a_manifest()) as log:
        log.event(Kind.RUN_STARTED)
        log.event(Kind.FANOUT_STARTED, cells=1)
        assert read_json(run.status, Status).stage == "batch"
        before = run.status.stat().st_ino
        log.event(Kind.CELL_STARTED, cell=CELL)
        log.activity(CELL, "model call \x1b[1m")
        assert run.status.stat().st_ino == before
        log.heartbeat()
        shown = read_json(run.status, Status)
    assert shown.active[0].activity == "model call"
    assert shown.seq == 3


def test_a_full_disk_refuses_the_event_and_keeps_log_and_status_readable(run: RunDir) -> None:
    a_short_run(run)
    limit = run.events.stat().st_size + 500
    code = """
import resource, sys
from pathlib import Path
from run_builders import a_manifest
from windtunnel.domain.events import Kind
from windtunnel.store.layout import RunDir
from windtunnel.store.run_log import RunLog
log = RunLog.open(RunDir(Path(sys.argv[1])), a_manifest())
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), int(sys.argv[2])))
refused = 0
for n in range(20):
    try:
        log.event(Kind.CELL_SKIPPED, cell="t1/b/rep0", reason="x" * 50)
    except OSError:
        refused += 1
log.close()
print(refused)
"""
    child = python(code, run.root, limit)
    out, _ = child.communicate(timeout=60)

    assert 0 < int(out) < 20
    read_json(run.status, Status)
    state = read_run(run)
    assert not state.gaps and state.torn_bytes == 0
    with RunLog.open(run, a_manifest()) as log:
        log.event(Kind.RUN_RESUMED)
    assert not read_run(run).gaps


WRITER = """
import sys
from pathlib import Path
from run_builders import a_manifest
from windtunnel.domain.events import Kind
from windtunnel.store.layout import RunDir
from windtunnel.store.owner import OwnerLock
from windtunnel.store.run_log import RunLog
run = RunDir(Path(sys.argv[1]))
lock = OwnerLock.take(run)
log = RunLog.open(run, a_manifest())
log.event(Kind.RUN_RESUMED if log.status.seq else Kind.RUN_STARTED)
print("up", flush=True)
while True:
    log.event(Kind.CELL_STARTED, cell="t1/a/rep0")
    log.event(Kind.ATTEMPT_PHASE, cell="t1/a/rep0", attempt=1, phase="p" * 5000)
    log.event(Kind.CELL_FINISHED, cell="t1/a/rep0", status="invalid", reason="engine_error")
"""


def test_kill_at_any_instant_leaves_a_gapless_log_and_frees_the_run(run: RunDir) -> None:
    pause = random.Random(7)
    seen = 0
    for _ in range(6):
        child = python(WRITER, run.root)
        assert child.stdout is not None and child.stdout.readline() == "up\n"
        with pytest.raises(InputWrong, match=f"run r1 is already running: pid {child.pid}"):
            OwnerLock.take(run)
        assert read_run(run).liveness == "live"
        time.sleep(pause.uniform(0, 0.15))
        child.send_signal(signal.SIGKILL)
        child.wait()
        child.stdout.close()

        state = read_run(run)
        assert state.liveness == "crashed"
        assert not state.gaps and len(state.events) > seen
        assert state.status is not None and state.status.counts.planned == 4
        seen = len(state.events)
    assert rebuild_status(run).resumes == 5


def test_two_owners_are_refused_and_the_lock_is_free_after_close(run: RunDir) -> None:
    with OwnerLock.take(run):
        with pytest.raises(InputWrong, match=f"already running: pid {os.getpid()}"):
            OwnerLock.take(run)
        with pytest.raises(InputWrong):
            rebuild_status(run)
    lock = OwnerLock.take(run)
    lock.close()
    lock.close()
    owner = read_owner(run)
    assert owner is not None and owner.process == current()


def own(run: RunDir, process: ProcessId, host: str) -> None:
    owner = Owner(run_id="r1", host=host, process=process, taken_at="2026-12-01T00:00:00.000Z")
    write_atomic(run.owner_lock, to_json(owner))


def test_liveness_trusts_a_pid_only_on_its_own_host_boot_and_start_time(run: RunDir) -> None:
    a_short_run(run)
    me, here = current(), socket.gethostname()
    cases = {
        "alive here": (me, here, "live"),
        "reused pid": (msgspec.structs.replace(me, start_time=1.0), here, "crashed"),
        "another boot": (msgspec.structs.replace(me, boot_id="other"), here, "crashed"),
        "another host": (msgspec.structs.replace(me, start_time=1.0), "not-" + here, "live"),
    }
    for name, (process, host, expected) in cases.items():
        own(run, process, host)
        assert read_run(run).liveness == expected, name
        assert list_runs(run.root.parent)[0].liveness == expected, name

    old = msgspec.structs.replace(read_json(run.status, Status), heartbeat_at="2026-11-30T00:00:00.000Z")
    aged = [line.replace('"ts":"20', '"ts":"19') for line in run.events.read_text().splitlines(keepends=True)]
    run.events.write_text("".join(aged))
    write_atomic(run.status, to_json(old))
    own(run, me, here)
    assert read_run(run).liveness == "stalled"
    write_atomic(run.status, to_json(msgspec.structs.replace(old, heartbeat_at="yesterday")))
    state = read_run(run)
    assert state.liveness == "stalled" and any("heartbeat_at" in problem for problem in state.problems)


def test_a_run_that_ended_is_finished_also_when_its_status_was_not_written(run: RunDir) -> None:
    a_short_run(run)
    stale = run.status.read_bytes()
    with RunLog.open(run, a_manifest()) as log:
        log.event(Kind.RUN_COMPLETED)
    run.status.write_bytes(stale)
    own(run, msgspec.structs.replace(current(), start_time=1.0), socket.gethostname())

    state = read_run(run)
    assert (state.liveness, state.ended) == ("finished", True)
    summary = list_runs(run.root.parent)[0]
    assert summary.liveness == "finished"
    assert summary.status is not None and summary.status.state == "completed"


@pytest.mark.parametrize("data", [b"", b"{", b"\xff", b'{"schemaVersion":9}', b"[]", b"null"])
@pytest.mark.parametrize("name", ["manifest.json", "status.json", "confirmation.json", "events.ndjson", "owner.lock"])
def test_a_broken_file_is_a_problem_by_name_and_never_a_crash(run: RunDir, name: str, data: bytes) -> None:
    a_short_run(run)
    confirmation = Confirmation(identity="x", time="t", operator="o", how="flag")
    write_atomic(run.confirmation, to_json(confirmation))
    (run.root / name).write_bytes(data)
    state = read_run(run)

    assert list_runs(run.root.parent)
    if name not in {"owner.lock", "events.ndjson"}:
        assert any(name in problem for problem in state.problems)
    if name == "events.ndjson":
        assert any(name in problem for problem in state.problems) or state.torn_bytes == len(data)
    if name == "status.json":
        assert state.status is not None and state.status.counts.valid == 1
    if data == b'{"schemaVersion":9}' and name.endswith(".json"):
        assert any("schema 9 is newer than 1" in problem for problem in state.problems)


def test_an_empty_directory_is_no_run_and_a_name_is_one_path_segment(run: RunDir, tmp_path: Path) -> None:
    root = tmp_path / "_runs"
    assert list_runs(root) == []
    with pytest.raises(InputWrong, match=r"no run in .*; there is none"):
        find_run(root)
    a_short_run(run)
    (root / "empty").mkdir()
    assert [summary.run_id for summary in list_runs(root)] == ["r1"]
    assert find_run(root) == find_run(root, "r1") == run
    for name in ("r2", "../_runs/r1", "empty", ""):
        with pytest.raises(InputWrong, match=r"no run '.*' in .*; there are: r1"):
            find_run(root, name)


def test_the_last_event_is_read_from_the_tail_alone(run: RunDir) -> None:
    assert last_event(run.events) is None
    a_short_run(run)
    with run.events.open("ab") as file:
        file.write(b'{"torn')
    last = last_event(run.events)
    assert last is not None and last.seq == 5
    assert event_line(last) in run.events.read_bytes()
