from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner, Result

from run_builders import a_manifest, a_plan
from windtunnel.cli.main import main
from windtunnel.cli.status import list_command, show_command, status_command
from windtunnel.domain.digest import to_json
from windtunnel.domain.events import Kind
from windtunnel.domain.plan import Plan
from windtunnel.errors import FileDamaged, InputWrong
from windtunnel.store.layout import RunDir
from windtunnel.store.owner import OwnerLock
from windtunnel.store.run_log import RunLog


def call(command: object, *argv: object) -> Result:
    result = CliRunner().invoke(command, list(map(str, argv)), standalone_mode=False)  # type: ignore[arg-type]
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "results" / "_runs"


def a_run(root: Path, run_id: str = "r1") -> RunDir:
    run = RunDir(root / run_id)
    manifest = msgspec.structs.replace(a_manifest(run_id=run_id), created_at=f"2026-12-01T00:00:00.{run_id[1:]:0>3}Z")
    with RunLog.open(run, manifest) as log:
        log.event(Kind.RUN_STARTED)
        log.event(Kind.CELL_STARTED, cell="t1/a/rep0")
        log.event(Kind.ATTEMPT_PHASE, cell="t1/a/rep0", attempt=1, phase="follow")
        log.activity("t1/a/rep0", "\x1b]0;evil\x07model call")
        log.event(Kind.CELL_FINISHED, cell="t1/b/rep0", status="invalid", reason="engine_error")
        log.event(Kind.CELL_FINISHED, cell="t2/a/rep0", status="valid", reason="graded", reward=0.5)
        log.heartbeat()
    return run


def test_status_tells_counts_reasons_and_where_it_read_them(root: Path) -> None:
    run = a_run(root)
    out = call(status_command, "r1", "--state-root", root).output

    assert "cells      1 valid, 1 invalid, 1 running, 1 pending of 4" in out
    assert "reasons    engine_error 1, graded 1" in out
    assert "cost       unknown; unknown for 2 cells" in out
    assert "t2 / a / rep0  valid reward=0.500 cost=unknown" in out
    assert f"evidence   {run.events}, {run.status}" in out
    assert "seen as    live" in out
    assert "\x1b" not in out and "model call" in out and "evil" not in out
    assert "working" not in out and " ok" not in out


def test_status_as_json_and_of_the_newest_run(root: Path) -> None:
    a_run(root, "r1")
    a_run(root, "r2")
    found = json.loads(call(status_command, "--state-root", root, "--format", "json").output)

    assert (found["run_id"], found["liveness"]) == ("r2", "live")
    assert found["status"]["counts"]["planned"] == 4
    assert found["state_path"] == str(root / "r2")


def test_rebuild_writes_status_from_events_but_not_under_a_living_owner(root: Path) -> None:
    run = a_run(root)
    run.status.write_bytes(b"{torn")
    assert f"problem    {run.status}: not a valid Status" in call(status_command, "r1", "--state-root", root).output
    assert "not a valid" not in call(status_command, "r1", "--state-root", root, "--rebuild").output
    assert json.loads(run.status.read_bytes())["counts"]["valid"] == 1
    with OwnerLock.take(run), pytest.raises(InputWrong, match="already running"):
        call(status_command, "r1", "--state-root", root, "--rebuild")


def test_an_unknown_run_is_wrong_input_and_names_the_known(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a_run(root)
    with pytest.raises(SystemExit) as ended:
        main(["status", "r9", "--state-root", str(root)])
    assert ended.value.code == 1
    assert "no run 'r9'" in (err := capsys.readouterr().err) and "there are: r1" in err


def test_list_shows_every_run_newest_first(root: Path) -> None:
    assert call(list_command, "--state-root", root).output == f"no runs in {root}\n"
    a_run(root, "r1")
    a_run(root, "r2").manifest.write_bytes(b"")
    lines = call(list_command, "--state-root", root).output.splitlines()

    assert lines[0].split() == ["run", "state", "seen", "cells", "created", "problems"]
    assert [line.split()[0] for line in lines[1:]] == ["r1", "r2"]
    assert "running (starting)" in lines[1]
    listed = json.loads(call(list_command, "--state-root", root, "--format", "json").output)["runs"]
    assert listed[0]["counts"]["planned"] == 4
    assert any("manifest.json: empty" in problem for problem in listed[1]["problems"])


def test_list_draws_a_table_only_on_a_terminal(root: Path) -> None:
    a_run(root)
    code = "from windtunnel.cli.main import main; main()"
    command = [sys.executable, "-c", code, "list", "--state-root", str(root)]
    assert "┃" not in subprocess.run(command, capture_output=True, text=True).stdout
    ours, theirs = pty.openpty()
    try:
        done = subprocess.run(command, stdout=theirs, env=os.environ | {"TERM": "xterm", "COLUMNS": "120"})
        assert done.returncode == 0
        assert "r1" in (drawn := os.read(ours, 65536).decode()) and "┃" in drawn
    finally:
        os.close(ours)
        os.close(theirs)


def stored(plan: Plan, path: Path, *, receipt: str | None) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(to_json(plan))
    if receipt is not None:
        path.with_suffix(".txt").write_text(receipt)
    return path


def test_show_prints_the_receipt_of_a_plan_and_of_a_run(root: Path, tmp_path: Path) -> None:
    plan = a_plan()
    receipt = f"LAUNCH\n  {plan.planIdentity}\n\x1b[2Jx\x00\n"
    path = stored(plan, tmp_path / "plans" / "r1.json", receipt=receipt)
    assert call(show_command, path).output == f"LAUNCH\n  {plan.planIdentity}\nx\n"

    run = a_run(root)
    run.plan.write_bytes(to_json(plan))
    run.receipt.write_text(receipt)
    assert call(show_command, "r1", "--state-root", root).output == f"LAUNCH\n  {plan.planIdentity}\nx\n"


def test_show_refuses_what_is_not_the_plans_own_receipt(tmp_path: Path) -> None:
    plan = a_plan()
    with pytest.raises(InputWrong, match="no such plan"):
        call(show_command, tmp_path / "none.json")
    with pytest.raises(InputWrong, match="receipt cannot be read"):
        call(show_command, stored(plan, tmp_path / "a.json", receipt=None))
    with pytest.raises(FileDamaged, match="not the receipt of"):
        call(show_command, stored(plan, tmp_path / "b.json", receipt="another"))
    changed = msgspec.structs.replace(plan, baseline="b")
    with pytest.raises(FileDamaged, match="its content is"):
        call(show_command, stored(changed, tmp_path / "c.json", receipt="x"))
