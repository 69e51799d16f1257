"""The `command` subject: any command line, from the config's file `command` (one argument a line).

Placeholders: {prompt_file} {workdir} {model} {thinking} {box}. The model's address and key come as OPENAI_BASE_URL and
OPENAI_API_KEY in the environment, never in an argument: a command line can be seen by every process.
"""

from __future__ import annotations

import re
from pathlib import Path

from windtunnel.domain.role import EXECUTOR
from windtunnel.errors import FileDamaged, InputWrong
from windtunnel.subjects.config_files import argument_lines, copy_tree, find_file
from windtunnel.subjects.interface import BASE_URL, SANDBOX_PATH, TOKEN, Launch, LaunchContext
from windtunnel.subjects.plainest import PlainestSubject

__all__ = ["Command"]

_FILE = "command"
_PLACEHOLDER = re.compile(r"\{(prompt_file|workdir|model|thinking|box|base_url)\}")


class Command(PlainestSubject):
    """The prompt is on stdin and in {prompt_file}; done when the process ends."""

    name = "command"

    def refuse(self, inputs: Path, leaf: Path | None) -> list[str]:
        """A config without a command line, or with the model's address in it."""
        path = find_file(_FILE, inputs, leaf)
        if path is None:
            return [f"no file {_FILE!r} in the config (the command line, one argument a line)"]
        try:
            arguments = argument_lines(path)
        except FileDamaged as error:
            return [error.message]
        if not arguments:
            return [f"{path.name}: no argument in it"]
        if any("{base_url}" in argument for argument in arguments):
            return [f"{path.name}: {{base_url}} would be visible to every process; read OPENAI_BASE_URL instead"]
        return []

    def launch(self, context: LaunchContext) -> Launch:
        """The config's `bin/` comes first on PATH. Raises InputWrong when `refuse` would have said no."""
        why = self.refuse(context.inputs, context.leaf)
        path = find_file(_FILE, context.inputs, context.leaf)
        if why or path is None:
            raise InputWrong("; ".join(why))
        (context.stage / "instruction.md").write_text(context.instruction, encoding="utf-8")
        places = {
            "prompt_file": f"{context.inputs_in}/instruction.md",
            "workdir": context.workdir_in,
            "model": (context.model or "none").partition("/")[2] or context.model or "none",
            "thinking": str(context.thinking),
            "box": context.box_in,
        }
        argv = tuple(_PLACEHOLDER.sub(lambda match: places[match[1]], line) for line in argument_lines(path))
        return Launch(protocol="exit", argv=argv, env=_environment(context), prompt=context.instruction)


def _environment(context: LaunchContext) -> dict[str, str]:
    env = {}
    if copy_tree(context.inputs / "bin", context.stage / "bin"):
        env["PATH"] = f"{context.inputs_in}/bin:{SANDBOX_PATH}"
    if context.route is not None:
        env |= {"OPENAI_BASE_URL": f"{BASE_URL}/r/{context.route}/{EXECUTOR}", "OPENAI_API_KEY": TOKEN}
    return env
