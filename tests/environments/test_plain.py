"""What only the plain adapter promises: commands that fight their own holder."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from windtunnel.domain.task import ImageSource, Limits
from windtunnel.environments.interface import Sandbox, SandboxSpec
from windtunnel.environments.plain import PlainEnvironment


@pytest.fixture
async def sandbox(tmp_path: Path) -> AsyncIterator[Sandbox]:
    (tmp_path / "environment").mkdir()
    (tmp_path / "environment" / "Dockerfile").write_text("FROM debian:bookworm\nWORKDIR /app\n")
    environment = PlainEnvironment(work_root=tmp_path / "work")
    await environment.facts()
    image = await environment.image(ImageSource(context="environment"), task_dir=tmp_path, build_timeout_s=1)
    (tmp_path / "scratch").mkdir()
    spec = SandboxSpec("dsw-plain", {"windtunnel.run": "r"}, image, "none", Limits(), tmp_path / "scratch")
    opened = await environment.open(spec)
    yield opened
    await opened.remove()


async def test_a_command_that_kills_its_holder_ends_with_all_it_left(sandbox: Sandbox) -> None:
    began = time.monotonic()

    done = await sandbox.exec(["/bin/sh", "-c", "echo $$; sleep 50 & kill -9 $PPID; sleep 50"], timeout_s=40)

    assert time.monotonic() - began < 10
    assert (done.exit, done.timed_out) == (-signal.SIGKILL, False)
    shell = int(done.stdout)
    assert not psutil.pid_exists(shell) or psutil.Process(shell).status() == psutil.STATUS_ZOMBIE


async def test_an_orphan_without_a_mark_cannot_hold_an_exec_open(sandbox: Sandbox) -> None:
    began = time.monotonic()
    script = "env -i setsid sh -c 'echo $$; exec sleep 50' & sleep 0.3; kill -9 $PPID"

    done = await sandbox.exec(["/bin/sh", "-c", script], timeout_s=40)

    with suppress(ProcessLookupError):
        os.kill(int(done.stdout), signal.SIGKILL)
    assert time.monotonic() - began < 15
    assert not done.timed_out


async def test_the_end_of_a_command_leaves_the_launched_process_alone(sandbox: Sandbox) -> None:
    await sandbox.launch(["sleep", "100"], env={}, cwd=None, user=None)

    await sandbox.exec(["/bin/sh", "-c", "kill -9 $PPID; sleep 50"], timeout_s=40)

    assert await sandbox.launched_exit() is None
