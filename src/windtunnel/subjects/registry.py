"""Find a subject by name: the built-in ones and those of the entry point group `windtunnel.subjects`.

An entry point names a callable that takes the version (or None for its default) and returns a Subject.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable

from windtunnel.errors import InputWrong
from windtunnel.subjects.command import Command
from windtunnel.subjects.interface import Subject
from windtunnel.subjects.loop import Loop
from windtunnel.subjects.nop import Nop
from windtunnel.subjects.oracle import Oracle
from windtunnel.subjects.pi import Pi

__all__ = ["GROUP", "find", "known", "parse"]

GROUP = "windtunnel.subjects"
Maker = Callable[[str | None], Subject]


def parse(text: str) -> tuple[str, str | None]:
    """`pi@1.6.0` as ("pi", "1.6.0"), `pi` as ("pi", None). Raises InputWrong for anything else."""
    name, at, version = text.partition("@")
    if not name or (at and not version) or "@" in version or any(c.isspace() or c == "/" for c in text):
        raise InputWrong(f"subject {text!r}: expected NAME or NAME@VERSION, such as pi@1.6.0.")
    return name, version or None


def known() -> list[str]:
    """The names that can be found, sorted."""
    return sorted({*_BUILT_IN, *(point.name for point in importlib.metadata.entry_points(group=GROUP))})


def find(name: str, version: str | None = None) -> Subject:
    """The subject of this name. Raises InputWrong, listing the known names or versions."""
    maker = _BUILT_IN.get(name)
    if maker is None:
        points = importlib.metadata.entry_points(group=GROUP, name=name)
        if not points:
            raise InputWrong(f"no subject {name!r}. Known: {', '.join(known())}.")
        maker = next(iter(points)).load()
    return maker(version)


def _only_version(subject: Callable[[], Subject]) -> Maker:
    def make(version: str | None) -> Subject:
        made = subject()
        if version not in {None, made.version}:
            raise InputWrong(f"subject {made.name}@{version} does not exist. There is {made.name}@{made.version}.")
        return made

    return make


_BUILT_IN: dict[str, Maker] = {
    "command": _only_version(Command),
    "loop": _only_version(Loop),
    "nop": _only_version(Nop),
    "oracle": _only_version(Oracle),
    "pi": Pi,
}
