"""The port to an agent product: how to start it, how to know it is done, what it says about itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

from windtunnel.domain.role import Thinking
from windtunnel.domain.task import Task
from windtunnel.domain.wire import Tokens

__all__ = ["Account", "Launch", "LaunchContext", "Subject"]

# Text the driver replaces in env values and in files listed under `render`; the port differs where many
# attempts share one network namespace (plain).
BASE_URL = "{{windtunnel.base_url}}"
TOKEN = "{{windtunnel.token}}"
SANDBOX_PATH = "{{windtunnel.path}}"  # the PATH that the sandbox gives its processes


@dataclass(frozen=True)
class LaunchContext:
    """Everything an adapter may use to build a launch. Paths `*_in` are what a process in the sandbox sees.

    `inputs`: host directory with the run's own copy of the config files (`inputs/<config>/`), `leaf`: the leaf
    directory inside it or None. `stage`: empty host directory that becomes INPUTS (read-only) in the sandbox.
    `model`/`thinking` are as planned; `model` is `provider/id` or None. `route`: name of the executor's route.
    """

    task: Task
    instruction: str
    task_dir: Path
    model: str | None
    thinking: Thinking
    route: str | None
    inputs: Path
    leaf: Path | None
    stage: Path
    workdir_in: str
    bundle_in: str
    inputs_in: str
    box_in: str

    @property
    def own_root(self) -> bool:
        """Whether contract paths are real ones for a process in the sandbox (docker, local); not so in `plain`."""
        return self.inputs_in == "/windtunnel/in"


@dataclass(frozen=True)
class Launch:
    """What the driver is told. `argv` may hold paths and names, never a token or credential.

    protocol `exit`: done when the process ends; `prompt` (if any) is written to stdin, then stdin is closed.
    protocol `pi-rpc`: JSON lines on stdin/stdout; done at `agent_settled`.
    `render`: files below INPUTS that the driver copies to `writable` (a directory it makes in the sandbox, outside
    the box) while replacing BASE_URL and TOKEN; a directory is copied whole.
    `placed`: host path -> contract path, put into the sandbox before the start (oracle's solution).
    """

    protocol: Literal["exit", "pi-rpc"]
    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    prompt: str | None = None
    render: tuple[str, ...] = ()
    writable: str | None = None
    placed: Mapping[Path, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Account:
    """The subject's own account, read from the box after the end: claims. None: it keeps no such account."""

    settled: bool | None = None
    turns: int | None = None
    tool_calls: int | None = None
    stop_reason: str | None = None
    error: str | None = None
    tokens: Tokens | None = None
    session_files: tuple[str, ...] = ()


class Subject(Protocol):
    """Adapters: oracle.py, nop.py, command.py, loop.py, pi.py; registered under the entry point group
    `windtunnel.subjects`."""

    name: str
    version: str
    calls_models: bool  # has an executor role; without it `--model` may be left out

    def refuse(self, inputs: Path, leaf: Path | None) -> list[str]:
        """Why this config cannot run on this subject (unsupported file, forbidden flag); empty when it can."""
        ...

    def overlay_description(self, inputs: Path, leaf: Path | None, *, model: str, route: str) -> list[str]:
        """What the harness changes in the config's own files to lead model calls through the gateway, a line a field.
        Raises InputWrong or NotBuiltYet when that cannot be done."""
        ...

    def bundle(self) -> Path:
        """The built bundle directory of this subject (content-hashed, read-only). Raises InputWrong when it is not
        built yet, naming `windtunnel subject build`."""
        ...

    def launch(self, context: LaunchContext) -> Launch:
        """Fill `context.stage` and say how to start."""
        ...

    def account(self, box: Path) -> Account:
        """Read the subject's own records from a host copy of the box. Never raises on garbage: it is agent output."""
        ...
