"""The contract between the supervisor and the driver (`driver.mjs`): `spec.json` in, events and an exit record out.

The driver is one JavaScript file on the bundle's Node, the same for every subject and environment. It is started
as `node <bundle>/driver.mjs <inputs>/spec.json`, owns the subject's stdin and stdout, relays the gateway's socket
to a loopback port, enforces the deadline and renames `exit.json` into the box as its last act.

Everything in the box is a claim: the subject can write there too.
"""

from __future__ import annotations

from typing import Literal

import msgspec

__all__ = [
    "DRIVER_EVENTS",
    "EXIT_RECORD",
    "RELAY_PORT",
    "SUBJECT_STDERR",
    "SUBJECT_STDOUT",
    "DriverSpec",
    "ExitRecord",
]

RELAY_PORT = 8177  # 0 in spec.json: any free port (plain, where attempts share a network namespace)
DRIVER_EVENTS = "driver-events.ndjson"
EXIT_RECORD = "exit.json"
SUBJECT_STDOUT = "subject.stdout"
SUBJECT_STDERR = "subject.stderr"


class DriverSpec(msgspec.Struct, frozen=True, kw_only=True):
    """`spec.json`. All paths are as seen inside the sandbox.

    mode `run`: the attempt. mode `check`: relay only, GET each of `check_paths` through it, record status and body
    in the exit record (credential path check, before any model call).
    `deadline_epoch_ms`: wall clock; `deadline_after_ms`: the same as a duration from the driver's own start, which
    wins when the clock jumps. After it TERM, 2 s, KILL for the subject's process group.
    `output_limit_bytes`: bound of subject.stdout and subject.stderr each; what is beyond is counted, not written.
    `render`: see Launch. `token_file`: file that holds the attempt's token.
    """

    schemaVersion: int = 1
    mode: Literal["run", "check"] = "run"
    attempt: str
    protocol: Literal["exit", "pi-rpc"] = "exit"
    argv: tuple[str, ...] = ()
    env: dict[str, str] = {}
    cwd: str | None = None
    prompt_file: str | None = None
    box: str
    socket: str | None = None
    relay_port: int = RELAY_PORT
    base_path: str = ""
    token_file: str | None = None
    render: tuple[str, ...] = ()
    inputs: str
    writable: str | None = None
    deadline_epoch_ms: int | None = None
    deadline_after_ms: int | None = None
    output_limit_bytes: int = 64 * 1024 * 1024
    check_paths: tuple[str, ...] = ()


class ExitRecord(msgspec.Struct, frozen=True, kw_only=True):
    """`exit.json`, renamed into place when the driver is done.

    `exit`: the subject's exit code, None when it was killed or never started; `signal`: by which signal.
    `settled`: the protocol's own "done" was seen (exit protocol: the process ended by itself).
    `started`: the subject process was started at all; `error`: why not.
    """

    schemaVersion: int = 1
    attempt: str
    started: bool
    exit: int | None = None
    signal: str | None = None
    settled: bool = False
    timed_out: bool = False
    error: str | None = None
    wall_ms: int = 0
    stdout_bytes: int = 0
    stderr_bytes: int = 0
    boot_id: str | None = None
    checks: tuple[dict[str, str | int | None], ...] = ()
