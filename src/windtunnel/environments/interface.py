"""The port to the place where a subject works: `docker`, `local` or `plain`.

One suite (tests/ports/test_environments.py) holds every adapter to this page. All calls are bounded by their
caller or by a time-out of their own; any failure of the engine is an `AttemptFault` with a reason code of the
outcome table (image_missing, image_build_failed, wrong_libc, container_lost, engine_error, ...).

Contract paths. Code above this port speaks of container paths (`/app`, `/logs/verifier`, `/windtunnel/box`).
`docker` and `local` have exactly these; `plain` has no root of its own, so a process must be told the real place:
`Sandbox.inside(path)` gives it, and every process gets WINDTUNNEL_WORKDIR, WINDTUNNEL_LOGS, WINDTUNNEL_TESTS.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from windtunnel.domain.task import ImageSource, Limits, Network

__all__ = [
    "BOX",
    "BUNDLE",
    "DOOR",
    "INPUTS",
    "Completed",
    "Environment",
    "EnvironmentFacts",
    "Fetched",
    "Image",
    "Mount",
    "Observed",
    "Sandbox",
    "SandboxSpec",
]

BUNDLE = "/windtunnel/bundle"  # read-only: node, driver.mjs, loop.mjs, the agent product
INPUTS = "/windtunnel/in"  # read-only: spec.json and the files the subject is given
BOX = "/windtunnel/box"  # the only writable directory shared with the host; everything in it is a claim
DOOR = "/windtunnel/door"  # read-only: holds gateway.sock of this attempt


@dataclass(frozen=True)
class EnvironmentFacts:
    """What the receipt and manifest say about the environment. `isolation`: one honest sentence."""

    name: str
    version: str
    isolation: str
    memory_enforced_by: str  # "engine", "cgroup", "poller", "nothing"


@dataclass(frozen=True)
class Image:
    """`id`: what the engine really runs (content id); `reference`: how to name it to the engine."""

    reference: str
    id: str
    workdir: str | None = None


@dataclass(frozen=True)
class Mount:
    source: Path
    target: str
    read_only: bool


@dataclass(frozen=True)
class SandboxSpec:
    """A sandbox to make. `fresh`: container directories that must exist and be EMPTY at the start, on storage of
    their own that is not part of the image (e.g. `/logs/verifier`, whatever the agent left there).
    `scratch`: an empty host directory for adapters that need one; it is removed with the sandbox."""

    name: str
    labels: Mapping[str, str]
    image: Image
    network: Network
    limits: Limits
    scratch: Path
    workdir: str | None = None
    user: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    mounts: Sequence[Mount] = ()
    fresh: Sequence[str] = ()


@dataclass(frozen=True)
class Completed:
    """A short command that ended. `exit` None: it was killed by the time-out. Output is cut at the limit."""

    exit: int | None
    stdout: bytes
    stderr: bytes
    timed_out: bool = False
    truncated: bool = False


@dataclass(frozen=True)
class Fetched:
    """What came out of the sandbox. `skipped`: entries left behind with why (links, devices, `: over the limit`)."""

    found: bool
    files: int
    bytes: int
    skipped: tuple[str, ...] = ()


@dataclass(frozen=True)
class Observed:
    """`peak_memory`: bytes or None. `oom_events` None: this environment cannot tell."""

    peak_memory: int | None
    oom_events: int | None


class Sandbox(Protocol):
    """One container, bubblewrap root or plain directory, from start to removal."""

    id: str
    spec: SandboxSpec

    def inside(self, path: str) -> str:
        """The path a process in the sandbox must use for a contract path."""
        ...

    async def put(self, source: Path, target: str) -> None:
        """Copy a host file or directory to a contract path (parents are made; owner root, or the sandbox user
        where there is no root). Works before and after processes run."""
        ...

    async def launch(self, argv: Sequence[str], *, env: Mapping[str, str], cwd: str | None, user: str | None) -> None:
        """Start the one long process (the driver), detached: it lives on when the supervisor dies. Its output goes
        nowhere; it reports through the box. No value of `env` may reach a command line."""
        ...

    async def launched_exit(self) -> int | None:
        """Exit code of the launched process, None while it runs. Raises AttemptFault(container_lost) when the
        sandbox is gone, -1 when it ended and the code cannot be known."""
        ...

    async def exec(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        user: str | None = None,
        timeout_s: float = 60.0,
        output_limit: int = 1_000_000,
    ) -> Completed:
        """Run a short command and wait. On time-out the command and its children are killed, not just the client."""
        ...

    async def end_processes(self) -> None:
        """End every process that runs in the sandbox, daemons and late writers included. Afterwards nothing of the
        subject runs any more, whatever it did; raises AttemptFault(engine_error) when that cannot be reached.
        Afterwards no exec is possible where the adapter ends the container with its processes (AttemptFault); fetch,
        reclaim, snapshot, observed and remove are."""
        ...

    async def fetch(self, source: str, target: Path, *, limit_bytes: int) -> Fetched:
        """Copy a file or directory out to the host path `target`, owned by the caller. Links, devices and names that
        would leave `target` are never followed or made; they are listed in `skipped`. Missing: found=False."""
        ...

    async def reclaim(self, path: str) -> None:
        """Make everything below a writable mount owned by the caller, links not followed; after the processes ended."""
        ...

    async def snapshot(self, name: str, labels: Mapping[str, str]) -> Image:
        """Freeze the ended sandbox's file system (mounts and fresh directories not included) into a temporary image.
        Raises AttemptFault(patch_too_big) where a copy would be larger than what can be kept."""
        ...

    async def observed(self) -> Observed:
        """Memory peak and out-of-memory kills so far."""
        ...

    async def disk_bytes(self) -> int | None:
        """How much the sandbox has written to storage of its own so far (docker: beyond its image; elsewhere: all of
        its root); None when it cannot be told now."""
        ...

    async def remove(self) -> None:
        """Kill and remove, with its volumes and scratch. Never raises when it is already gone."""
        ...


class Environment(Protocol):
    """Makes sandboxes. Adapters: docker.py, local.py, plain.py."""

    name: str

    async def facts(self) -> EnvironmentFacts:
        """Probe the machine. Raises EngineAbsent with the remedy when it cannot work here."""
        ...

    async def image(self, source: ImageSource, *, task_dir: Path, build_timeout_s: float, tests: bool = False) -> Image:
        """Pull, build (once per content hash) or look up. Raises AttemptFault(image_missing|image_build_failed)."""
        ...

    async def open(self, spec: SandboxSpec) -> Sandbox:
        """Create and start a sandbox: directories there, nothing of the subject running."""
        ...

    async def remove_image(self, image: Image) -> None:
        """Remove a temporary image made by `snapshot`. Never raises when it is already gone."""
        ...

    async def sweep(self, labels: Mapping[str, str]) -> list[str]:
        """Remove every sandbox and temporary image that carries ALL these labels; returns what was removed."""
        ...

    async def left(self, labels: Mapping[str, str]) -> list[str]:
        """Name every sandbox and temporary image that carries all these labels (verify's "nothing of ours is left")."""
        ...

    async def close(self) -> None:
        """Release connections."""
        ...
