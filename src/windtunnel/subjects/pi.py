"""The `pi` subject: the Pi coding agent from npm, run in its RPC mode.

Flags as one set were run with 1.6.0 in RPC mode: isolated (no discovery of extensions, skills, templates, themes, MCP
servers, context files, project settings), offline but for the model, sessions in the box. Done is `agent_settled`.
"""

from __future__ import annotations

from pathlib import Path

from windtunnel.domain.digest import to_json
from windtunnel.errors import FileDamaged, InputWrong
from windtunnel.subjects.bundle import bundle_for
from windtunnel.subjects.bundle_content import locked_versions
from windtunnel.subjects.config_files import argument_lines, copy_tree, find_file, read_object, system_text
from windtunnel.subjects.interface import SANDBOX_PATH, Account, Launch, LaunchContext
from windtunnel.subjects.pi_overlay import Overlay, overlay
from windtunnel.subjects.pi_session import account_of

__all__ = ["Pi"]

_CLI = "node_modules/@earendil-works/pi-coding-agent/dist/bundle/cli.js"
_ISOLATION = (
    "--no-extensions",
    "--no-skills",
    "--no-prompt-templates",
    "--no-themes",
    "--no-mcp",
    "--no-context-files",
    "--no-approve",
    "--offline",
)
_HARNESS_SETS = {
    *("-p", "--print", "--mode", "--model", "--thinking", "--session-dir", "--append-system-prompt", "--offline"),
    *("--provider", "--api-key"),
}
# These would run something else than the agent, write elsewhere, or let in what no role covers.
_HARNESS_FORBIDS = {
    *("-c", "--continue", "-r", "--resume", "--session", "--session-id", "--fork", "--no-session", "--models"),
    *("-a", "--approve", "-e", "--extension", "--export", "--list-models", "-h", "--help", "-v", "--version", "--"),
}
_ENV = {"PI_OFFLINE": "1", "PI_TELEMETRY": "0", "PI_SKIP_VERSION_CHECK": "1"}
_AGENT = "agent"  # name of the agent directory's template below INPUTS, and of its copy below `writable`


class Pi:
    """Takes pi-flags, models.json, settings.json, system_preamble.md, orchestration.md, skills/, extensions/, bin/."""

    name = "pi"
    calls_models = True

    def __init__(self, version: str | None = None) -> None:
        """The newest locked version when none is named. Raises InputWrong for one without a lock."""
        versions = locked_versions(self.name)
        if version is not None and version not in versions:
            raise InputWrong(
                f"subject pi@{version} has no lock (subjects/locks/pi-{version}/). Locked: {', '.join(versions)}."
            )
        self.version = version or versions[-1]

    def refuse(self, inputs: Path, leaf: Path | None) -> list[str]:
        """Flags that the harness sets, files that cannot be read, settings that load code of no role."""
        why: list[str] = []
        for folder in _folders(inputs, leaf):
            why += _refused_flags(folder, inputs)
        for name in ("models.json", "settings.json"):
            try:
                document = read_object(find_file(name, inputs, leaf))
            except FileDamaged as error:
                why.append(error.message)
                continue
            loads = [key for key in ("packages", "extensions") if name == "settings.json" and document.get(key)]
            why += [f"{name}: {key} loads extensions that no role covers" for key in loads]
        return why

    def bundle(self) -> Path:
        """Raises InputWrong, naming `windtunnel subject build`, when it is not built."""
        return bundle_for(self.name, self.version).path

    def overlay_description(self, inputs: Path, leaf: Path | None, *, model: str, route: str) -> list[str]:
        """What the harness changes in the config's files, a line a field, for the receipt. Raises as `overlay`."""
        return list(overlay(inputs, leaf, model=model, route=route).changes)

    def launch(self, context: LaunchContext) -> Launch:
        """Stage: agent/ (rendered to a writable directory), append-system.md, skills/, extensions/, bin/."""
        if context.model is None or context.route is None:
            raise InputWrong("subject pi needs a model. Give --model provider/model.")
        overlaid = overlay(context.inputs, context.leaf, model=context.model, route=context.route)
        _stage_agent(context.stage / _AGENT, overlaid)
        writable = _writable(context)
        env = _ENV | {"PI_CODING_AGENT_DIR": f"{writable}/{_AGENT}"}
        if copy_tree(context.inputs / "bin", context.stage / "bin"):
            env["PATH"] = f"{context.inputs_in}/bin:{SANDBOX_PATH}"
        return Launch(
            protocol="pi-rpc",
            argv=_argv(context),
            env=env,
            prompt=context.instruction,
            render=(_AGENT,),
            writable=writable,
        )

    def account(self, box: Path) -> Account:
        """From session/*.jsonl; whether it settled is the driver's claim, not the session's."""
        return account_of(box / "session")


def _folders(inputs: Path, leaf: Path | None) -> list[Path]:
    """Root first, then leaf: where Pi reads a flag twice, the last one wins."""
    return [inputs] if leaf is None else [inputs, leaf]


def _flag_files(inputs: Path, leaf: Path | None) -> list[Path]:
    return [path for folder in _folders(inputs, leaf) if (path := folder / "pi-flags").is_file()]


def _refused_flags(folder: Path, inputs: Path) -> list[str]:
    path = folder / "pi-flags"
    if not path.is_file():
        return []
    try:
        flags = [line.partition("=")[0] for line in argument_lines(path)]
    except FileDamaged as error:
        return [error.message]
    place = path.relative_to(inputs)
    sets = [f"{place}: {flag} is set by the harness" for flag in flags if flag in _HARNESS_SETS]
    return sets + [f"{place}: {flag} cannot be used in a measurement" for flag in flags if flag in _HARNESS_FORBIDS]


def _stage_agent(folder: Path, overlaid: Overlay) -> None:
    folder.mkdir()
    (folder / "models.json").write_bytes(to_json(overlaid.models))
    (folder / "settings.json").write_bytes(to_json(overlaid.settings))


def _writable(context: LaunchContext) -> str:
    """One constant path where the sandbox has a root of its own (the agent can see it); else beside its inputs."""
    return "/tmp/windtunnel" if context.own_root else f"{context.inputs_in}.writable"


def _argv(context: LaunchContext) -> tuple[str, ...]:
    argv = [f"{context.bundle_in}/node", f"{context.bundle_in}/{_CLI}", "--mode", "rpc"]
    argv += ["--session-dir", f"{context.box_in}/session", *_ISOLATION]
    argv += ["--model", str(context.model), "--thinking", str(context.thinking)]
    system = system_text(context.inputs)
    if system:
        # Given as a file: Pi reads the argument as a path when such a file exists, and as text otherwise.
        (context.stage / "append-system.md").write_text(system, encoding="utf-8")
        argv += ["--append-system-prompt", f"{context.inputs_in}/append-system.md"]
    if copy_tree(context.inputs / "skills", context.stage / "skills"):
        argv += ["--skill", f"{context.inputs_in}/skills"]
    if copy_tree(context.inputs / "extensions", context.stage / "extensions"):
        for name in sorted(entry.name for entry in (context.inputs / "extensions").iterdir()):
            argv += ["-e", f"{context.inputs_in}/extensions/{name}"]
    for path in _flag_files(context.inputs, context.leaf):
        argv += argument_lines(path)
    return tuple(argv)
