"""What only the bubblewrap adapter promises."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from windtunnel.domain.task import ImageSource, Limits
from windtunnel.environments import local, local_sandbox
from windtunnel.environments.bubblewrap import SANDBOX_OWNER, Bind, Bubblewrap
from windtunnel.environments.bubblewrap_run import read_status
from windtunnel.environments.interface import Sandbox, SandboxSpec
from windtunnel.environments.local import LocalEnvironment
from windtunnel.errors import AttemptFault, EngineAbsent

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root makes a memory group")


@pytest.fixture
async def sandbox(tmp_path: Path) -> AsyncIterator[Sandbox]:
    (tmp_path / "environment").mkdir()
    (tmp_path / "environment" / "Dockerfile").write_text("FROM debian:bookworm\nWORKDIR /app\n")
    environment = LocalEnvironment(work_root=tmp_path / "work")
    await environment.facts()
    image = await environment.image(ImageSource(context="environment"), task_dir=tmp_path, build_timeout_s=1)
    (tmp_path / "scratch").mkdir()
    opened = await environment.open(
        SandboxSpec(
            name="dsw-local",
            labels={"windtunnel.run": "r"},
            image=image,
            network="none",
            limits=Limits(memory_mb=100, pids=50),
            scratch=tmp_path / "scratch",
        )
    )
    yield opened
    await opened.remove()


@pytest.mark.sandbox
async def test_processes_are_unprivileged_and_cannot_gain_rights(sandbox: Sandbox) -> None:
    done = await sandbox.exec(["/bin/sh", "-c", "id -u; grep -E 'CapEff|CapBnd|NoNewPrivs' /proc/self/status"])

    uid, *facts = done.stdout.decode().split()
    assert int(uid) == (SANDBOX_OWNER.uid if os.geteuid() == 0 else os.geteuid())
    assert facts[1] == "0" * 16 and facts[-1] == "1"


@pytest.mark.sandbox
async def test_the_system_is_read_only_and_the_hosts_secrets_are_not_there(sandbox: Sandbox) -> None:
    script = "touch /usr/x; touch /etc/x; touch /x; cat /etc/shadow; ls /root/.ssh; ls /var/run/docker.sock; exit 0"

    done = await sandbox.exec(["/bin/sh", "-c", script])

    assert done.stdout == b""
    assert len(done.stderr.splitlines()) == 6


@pytest.mark.sandbox
async def test_this_python_is_there(sandbox: Sandbox) -> None:
    done = await sandbox.exec(["python3", "-c", "import json, ssl, sqlite3; print('ok')"])

    assert (done.exit, done.stdout) == (0, b"ok\n"), done.stderr


@pytest.mark.sandbox
async def test_no_descriptor_of_ours_is_left_open_inside(sandbox: Sandbox) -> None:
    await sandbox.launch(["/bin/sh", "-c", "ls -l /proc/self/fd > fds"], env={}, cwd=None, user=None)
    while await sandbox.launched_exit() is None:
        pass
    done = await sandbox.exec(["cat", "fds"])

    assert b"status" not in done.stdout and b"memfd" not in done.stdout, done.stdout


@pytest.mark.sandbox
@as_root
async def test_the_memory_ceiling_holds_and_its_kill_is_seen(sandbox: Sandbox) -> None:
    facts = await LocalEnvironment(work_root=sandbox.spec.scratch.parent / "other").facts()
    if facts.memory_enforced_by != "cgroup":
        pytest.skip("no control groups for root here")

    done = await sandbox.exec(["python3", "-c", "x = bytearray(400_000_000)"])
    seen = await sandbox.observed()

    assert done.exit == 137
    assert seen.oom_events == 1
    assert seen.peak_memory is not None and seen.peak_memory <= 100 * 1024 * 1024


@pytest.mark.sandbox
@as_root
async def test_an_end_that_is_not_reached_is_said(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    """A frozen process of version 1's freezer does not die of a KILL before it is thawed."""
    freezer = Path("/sys/fs/cgroup/freezer")
    group = Path(f"/sys/fs/cgroup/memory/windtunnel-{sandbox.id}")
    if not os.access(freezer, os.W_OK) or not group.is_dir():
        pytest.skip("no version 1 freezer here")
    monkeypatch.setattr(local_sandbox, "_END_S", 0.3)
    cold = freezer / f"windtunnel-test-{sandbox.id}"
    cold.mkdir()
    stuck = await asyncio.create_subprocess_exec("sleep", "1000")
    try:
        for place in (cold, group):
            (place / "cgroup.procs").write_text(str(stuck.pid))
        (cold / "freezer.state").write_text("FROZEN")
        with pytest.raises(AttemptFault, match=f"cannot be ended: {stuck.pid}") as caught:
            await sandbox.end_processes()
    finally:
        (cold / "freezer.state").write_text("THAWED")
        stuck.kill()
        await stuck.wait()
        cold.rmdir()

    assert caught.value.reason == "engine_error"
    await sandbox.end_processes()


@pytest.mark.sandbox
async def test_files_for_the_machines_own_directories_are_refused(sandbox: Sandbox, tmp_path: Path) -> None:
    (tmp_path / "x").write_text("x")

    with pytest.raises(AttemptFault, match="this machine's own"):
        await sandbox.put(tmp_path / "x", "/usr/bin/x")


async def test_without_bubblewrap_the_environment_is_absent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "find_bubblewrap", lambda: None)

    with pytest.raises(EngineAbsent, match="plain"):
        await LocalEnvironment(work_root=tmp_path).facts()


async def test_a_bubblewrap_that_fails_makes_the_environment_absent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "bwrap"
    program.write_text("#!/bin/sh\necho 'No permissions to create new namespace' >&2; exit 1\n")
    program.chmod(0o755)
    monkeypatch.setattr(local, "find_bubblewrap", lambda: Bubblewrap(program, "0.8.0", drop=False))

    with pytest.raises(EngineAbsent, match="No permissions to create new namespace"):
        await LocalEnvironment(work_root=tmp_path / "work").facts()


def test_values_are_in_the_options_and_not_in_the_command(tmp_path: Path) -> None:
    bubblewrap = Bubblewrap(Path("/usr/bin/bwrap"), "0.8.0", drop=True)
    binds = [Bind(tmp_path, "/windtunnel/box", False), Bind(tmp_path, "/app", False), Bind(tmp_path, "/in", True)]

    options = bubblewrap.options(
        binds=binds, network="none", env={"KEY": "value\nwith line"}, cwd="/app", etc=tmp_path, attached=False
    ).split(b"\0")
    command = bubblewrap.command(3, 4, ["true"])

    assert b"value\nwith line" in options and b"--unshare-net" in options and b"--die-with-parent" not in options
    assert options.index(b"/app") < options.index(b"/windtunnel/box"), "a mount below another comes after it"
    assert "KEY" not in " ".join(command)


@pytest.mark.parametrize("data", [b"", b"{", b'{"child-pid": 5', b"garbage\n\xff\n"])
def test_a_torn_status_says_nothing(data: bytes) -> None:
    assert read_status(data) == {}


def test_status_documents_are_merged() -> None:
    assert read_status(b'{ "child-pid": 5 }\n{ "exit-code": 7 }\n') == {"child-pid": 5, "exit-code": 7}
