"""The flags that `windtunnel plan` and `run_batch` share, and the request made from them."""

from __future__ import annotations

import math
import os
import secrets
import subprocess
from collections import Counter
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from windtunnel import __version__
from windtunnel.domain.role import Thinking
from windtunnel.errors import InputWrong, NotBuiltYet
from windtunnel.steps.draft_request import Request
from windtunnel.store.tasks import bundled_root

__all__ = ["RecordedCommand", "build_request", "plan_options", "refuse_not_built", "versions"]

F = TypeVar("F", bound=Callable[..., Any])

# Parameter -> flag: on the command line so that asking for it gets an honest answer.
_NOT_BUILT = {
    "max_cost": "--max-cost",
    "cell_max_cost": "--cell-max-cost",
    "no_auto_resume": "--no-auto-resume",
    "max_quota_wait": "--max-quota-wait",
    "quota_poll": "--quota-poll",
    "watchdog": "--watchdog",
    "pass_openai_codex_oauth": "--pass-openai-codex-oauth",
    "idle_timeout": "--idle-timeout",
    "price_file": "--price-file",
    "probe_credentials": "--probe-credentials",
    "detach": "--detach",
}


# Parameters that are request fields as they are.
_TAKEN_OVER = (
    *("model", "baseline_config", "span", "all_tasks", "sample", "reps", "workers", "order", "order_seed"),
    *("memory_mb", "cpus", "pids", "verifier_network", "preflight", "existing", "cell_retries", "host_reserve_gb"),
    *("capture_bodies", "allow_openrouter", "allow_unproven_thinking"),
)


class RecordedCommand(click.Command):
    """A command that keeps the arguments it was given: the plan records the exact command that made it."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta["windtunnel.arguments"] = tuple(args)
        self._refuse_repeated(ctx, args)
        return super().parse_args(ctx, args)

    def _refuse_repeated(self, ctx: click.Context, args: list[str]) -> None:
        """The library would silently take the last value of an option that is given twice."""
        _, _, order = self.make_parser(ctx).parse_args(list(args))
        for option, times in Counter(order).items():
            one = isinstance(option, click.Option) and not (option.multiple or option.is_flag or option.count)
            if one and times > 1:
                raise InputWrong(f"{' / '.join(option.opts)} is given {times} times; it takes one value. Give it once.")


def _finite(_ctx: click.Context, parameter: click.Parameter, value: float | None) -> float | None:
    if value is not None and not math.isfinite(value):
        raise click.BadParameter(f"{value} is not a number to plan with", param=parameter)
    return value


_PATH = click.Path(path_type=Path)
_COUNT = click.IntRange(min=1)
_SECONDS: dict[str, Any] = {"type": click.FloatRange(min=0, min_open=True), "callback": _finite, "metavar": "S"}
_LATER = "Not built yet."


def _option(*names: str, **settings: Any) -> Callable[[F], F]:
    return click.option(*names, **settings)


def _what(old_names: bool) -> list[Callable[[F], F]]:
    subject = ("--subject", "--agent") if old_names else ("--subject",)
    reps = ("--reps", "--runs") if old_names else ("--reps",)
    return [
        _option(*subject, "subject", default=None, metavar="NAME[@VERSION]", help="Agent product. [default: pi]"),
        _option("--model", metavar="PROVIDER/MODEL", help="The executor's model; required for subjects that call one."),
        _option(
            "--thinking",
            type=click.Choice([level.value for level in Thinking]),
            help="Reasoning level. [default: high; off without --model]",
        ),
        _option("--configs", required=True, metavar="A,B", help="Configs to run, by name or path."),
        _option("--baseline-config", metavar="NAME", help="What others are compared with. [default: the first]"),
        _option("--config-root", type=_PATH, default=Path("configs"), show_default=True, help="Where configs lie."),
        _option("--leaf", multiple=True, metavar="CONFIG=NAME", help="Choose one of several fitting leaves."),
        _option("--tasks", metavar="A,B", help="Tasks by id."),
        _option("--subset", metavar="NAME", help="Tasks listed in ./subsets/NAME.txt."),
        _option("--range", "span", metavar="A:B", help="Tasks by position, from 0, half open."),
        _option("--all-tasks", is_flag=True, help="Every task of the root."),
        _option("--sample", type=_COUNT, metavar="N", help="N tasks chosen by --seed."),
        _option("--seed", type=int, metavar="S", help="Seed of --sample."),
        _option("--tasks-root", type=_PATH, help="Where tasks lie. [default: ./tasks, else the bundled ones]"),
        _option(*reps, "reps", type=_COUNT, default=1, show_default=True, help="Repetitions of each task and config."),
        _option("--workers", type=_COUNT, default=1, show_default=True, help="Cells at a time."),
        _option(
            "--order", type=click.Choice(["interleave", "task", "shuffle"]), default="interleave", show_default=True
        ),
        _option("--order-seed", type=int, default=0, show_default=True, help="Seed of the order."),
    ]


def _how() -> list[Callable[[F], F]]:
    return [
        _option(
            "--environment", type=click.Choice(["docker", "local", "plain"]), help="[default: docker if reachable]"
        ),
        _option(
            "--memory-mb", type=click.IntRange(min=16), help="Memory of each container, MiB. [default: the task's]"
        ),
        _option("--cpus", type=click.FloatRange(min=0, min_open=True), callback=_finite, help="[default: the task's]"),
        _option("--pids", type=click.IntRange(min=16), help="[default: the task's, else 4096]"),
        _option("--agent-timeout", **_SECONDS, help="Seconds an agent may work. [default: the task's]"),
        _option("--idle-timeout", **_SECONDS, help=_LATER),
        _option("--verifier-network", type=click.Choice(["none", "public"]), help="[default: the task's]"),
        _option("--preflight", type=click.Choice(["new-configs", "required", "disabled"]), default="new-configs"),
        _option("--existing", type=click.Choice(["reuse", "quarantine"]), default="reuse", show_default=True),
        _option("--cell-retries", type=click.IntRange(min=0), help="[default: by reason, see outcomes]"),
        _option(
            "--host-reserve-gb", type=click.FloatRange(min=0), callback=_finite, help="[default: 12 or 20 % of RAM]"
        ),
        _option("--capture-bodies", default="first:2", show_default=True, metavar="first:N|errors|all|none"),
        _option("--allow-openrouter", is_flag=True, help="Consent to OpenRouter for this plan."),
        _option("--allow-unproven-thinking", multiple=True, metavar="ROLE", help="Accept an unknown level of a role."),
        _option("--credential-path", multiple=True, metavar="ROUTE=gateway", help="`container` is not built yet."),
        _option("--pass-openai-codex-oauth", is_flag=True, help=_LATER),
        _option("--probe-credentials", is_flag=True, help=_LATER),
        _option("--watchdog", metavar="auto|running|start|skip:REASON", help=_LATER),
        _option("--max-cost", metavar="USD", help=_LATER),
        _option("--cell-max-cost", metavar="USD", help=_LATER),
        _option("--price-file", metavar="FILE", help=_LATER),
        _option("--no-auto-resume", is_flag=True, help=_LATER),
        _option("--max-quota-wait", metavar="S", help=_LATER),
        _option("--quota-poll", metavar="S", help=_LATER),
    ]


def _where() -> list[Callable[[F], F]]:
    return [
        _option("--run-id", metavar="NAME", help="Name of the run. [default: from the time]"),
        _option(
            "--progress-interval",
            **_SECONDS,
            default=15.0,
            show_default=True,
            help="Seconds between heartbeats and progress lines.",
        ),
        _option("--results-root", type=_PATH, default=Path("results"), show_default=True),
        _option("--state-root", type=_PATH, help="[default: _runs below the results root]"),
        _option("--plan-out", type=_PATH, default=Path("plans"), show_default=True, help="Directory, or a .json file."),
        _option("--receipt-out", type=_PATH, help="Directory, or a .txt file. [default: beside the plan]"),
    ]


def plan_options(*, old_names: bool = False) -> Callable[[F], F]:
    """Decorate a command with every flag of the plan; `old_names` adds the operators' old spellings."""

    def decorate(function: F) -> F:
        for option in reversed([*_what(old_names), *_how(), *_where()]):
            function = option(function)
        return function

    return decorate


def refuse_not_built(context: click.Context) -> None:
    """Refuse by name every given flag whose part does not exist yet. Raises NotBuiltYet."""
    for name, flag in _NOT_BUILT.items():
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise NotBuiltYet(flag, f"windtunnel {context.info_name}")
    for entry in context.params["credential_path"]:
        route, _, path = entry.partition("=")
        if path == "container":
            raise NotBuiltYet("--credential-path container", f"route {route}")
        if not route or path != "gateway":
            raise InputWrong(f"--credential-path {entry!r}: expected ROUTE=gateway.")


def build_request(context: click.Context, environment: str, program: tuple[str, ...]) -> Request:
    """The request in a command's parameters; `program`: how the command was called. Raises InputWrong."""
    given = context.params
    run_id = given["run_id"] or datetime.now(UTC).strftime("%Y%m%d-%H%M%S-") + secrets.token_hex(2)
    results = _absolute(given["results_root"])
    plan_file = _out_file("--plan-out", given["plan_out"], run_id, ".json")
    receipt_file = _out_file("--receipt-out", given["receipt_out"] or plan_file.with_suffix(".txt"), run_id, ".txt")
    fields = {name: given[name] for name in _TAKEN_OVER}
    fields["baseline"] = fields.pop("baseline_config")
    return Request(
        command=(*program, *context.meta.get("windtunnel.arguments", ())),
        run_id=run_id,
        configs=tuple(_listed(given["configs"])),
        environment=environment,  # type: ignore[arg-type]  # click checked the choice
        workspace=Path.cwd(),
        config_root=_absolute(given["config_root"]),
        tasks_root=_tasks_root(given["tasks_root"]),
        results_root=results,
        state_root=_absolute(given["state_root"]) if given["state_root"] else results / "_runs",
        plan_file=plan_file,
        receipt_file=receipt_file,
        thinking=Thinking(given["thinking"]) if given["thinking"] else None,
        leaves=dict(_leaf(entry) for entry in given["leaf"]),
        tasks=tuple(_listed(given["tasks"])),
        subset=_subset(given["subset"]),
        sample_seed=given["seed"],
        credential_paths=tuple(entry.partition("=")[0] for entry in given["credential_path"]),
        agent_timeout_s=given["agent_timeout"],
        progress_interval_s=given["progress_interval"],
        **fields,
    )


def _listed(text: str | None) -> Iterable[str]:
    return [part.strip() for part in (text or "").split(",") if part.strip()]


def _leaf(entry: str) -> tuple[str, str]:
    config, equals, leaf = entry.partition("=")
    if not config or not equals or not leaf:
        raise InputWrong(f"--leaf {entry!r}: expected CONFIG=NAME.")
    return config, leaf


def _subset(name: str | None) -> Path | None:
    if name is None:
        return None
    if not name or "/" in name or name.startswith("."):
        raise InputWrong(f"--subset {name!r}: expected the name of a file ./subsets/NAME.txt.")
    return _absolute(Path("subsets") / f"{name}.txt")


def _tasks_root(given: Path | None) -> Path:
    if given is not None:
        return _absolute(given)
    own = _absolute(Path("tasks"))
    return own if own.is_dir() else bundled_root()


def _out_file(flag: str, given: Path, run_id: str, suffix: str) -> Path:
    path = _absolute(given)
    if path.is_dir() or not path.suffix:
        return path / f"{run_id}{suffix}"
    if path.suffix != suffix:
        raise InputWrong(f"{flag} {given}: expected a {suffix} file or a directory (a new one without a dot).")
    return path


def _absolute(path: Path) -> Path:
    return Path(os.path.abspath(path))  # noqa: PTH100 - resolve() would lose the name of a linked directory


def versions() -> dict[str, str | None]:
    """What made the plan; recorded, never part of an identity. `git`: revision of this program's checkout."""
    return {"windtunnel": __version__, "git": _git_revision()}


def _git_revision() -> str | None:
    here = Path(__file__).parent
    if not (here.parents[2] / ".git").exists():
        return None
    try:
        asked = subprocess.run(
            ["git", "-C", str(here), "rev-parse", "HEAD"], capture_output=True, text=True, timeout=5, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return asked.stdout.strip() or None
