"""The `loop` subject: a minimal agent of ours in one file (js/loop.mjs): chat completions, one shell tool."""

from __future__ import annotations

from pathlib import Path

from windtunnel.domain.role import EXECUTOR
from windtunnel.errors import InputWrong
from windtunnel.subjects.claims import TokenSum, count, mapping, records, text
from windtunnel.subjects.config_files import copy_tree, system_text
from windtunnel.subjects.interface import BASE_URL, SANDBOX_PATH, TOKEN, Account, Launch, LaunchContext
from windtunnel.subjects.plainest import PlainestSubject

__all__ = ["Loop"]

_SYSTEM = (
    "You work on a task in a directory of a Linux machine, with a shell as your only tool. "
    "Nobody can answer questions: decide yourself, do the work, check it, then answer without a tool call."
)
_NO_MEANING = ("pi-flags", "settings.json", "advisor.json", "skills", "extensions", "command")
_USAGE = {name: name for name in ("input", "cache_read", "output", "reasoning")}


class Loop(PlainestSubject):
    """Takes `system_preamble.md`, `orchestration.md`, `bin/` and `env` from a config."""

    name = "loop"
    calls_models = True

    def refuse(self, inputs: Path, leaf: Path | None) -> list[str]:
        """Files of a config that would have no effect on this subject."""
        folders = [inputs] if leaf is None else [inputs, leaf]
        found = [path for folder in folders for name in _NO_MEANING if (path := folder / name).exists()]
        return [f"{path.relative_to(inputs)} has no meaning for subject loop" for path in found]

    def launch(self, context: LaunchContext) -> Launch:
        """Raises InputWrong without a model."""
        if context.model is None or context.route is None:
            raise InputWrong("subject loop needs a model. Give --model provider/model.")
        own = system_text(context.inputs)
        (context.stage / "system.md").write_text(f"{_SYSTEM}\n\n{own}" if own else _SYSTEM, encoding="utf-8")
        options = {
            "model": context.model.partition("/")[2],
            "thinking": str(context.thinking),
            "system": f"{context.inputs_in}/system.md",
            "session": f"{context.box_in}/session",
        }
        env = {"OPENAI_BASE_URL": f"{BASE_URL}/r/{context.route}/{EXECUTOR}", "OPENAI_API_KEY": TOKEN}
        if copy_tree(context.inputs / "bin", context.stage / "bin"):
            env["PATH"] = f"{context.inputs_in}/bin:{SANDBOX_PATH}"
        return Launch(
            protocol="exit",
            argv=(
                f"{context.bundle_in}/node",
                f"{context.bundle_in}/loop.mjs",
                *(f"--{name}={value}" for name, value in options.items()),
            ),
            env=env,
            prompt=context.instruction,
        )

    def account(self, box: Path) -> Account:
        """From session/loop.jsonl; without its `end` line the loop did not come to an end."""
        usage, turns, calls = TokenSum(_USAGE), 0, 0
        stop, error, settled, files = None, None, False, set[str]()
        for name, entry in records(box / "session"):
            files.add(f"session/{name}")
            if entry.get("type") == "message" and entry.get("role") == "assistant":
                turns += 1
                calls += len(entry["tool_calls"]) if isinstance(entry.get("tool_calls"), list) else 0
                stop = text(entry.get("stop_reason"))
                usage.add(mapping(entry.get("usage")))
            elif entry.get("type") == "end":
                settled = count(entry.get("turns")) is not None
                stop, error = text(entry.get("stop_reason")), text(entry.get("error"))
        if not files:
            return Account(settled=False)
        return Account(
            settled=settled,
            turns=turns,
            tool_calls=calls,
            stop_reason=stop,
            error=error,
            tokens=usage.tokens,
            session_files=tuple(sorted(files)),
        )
