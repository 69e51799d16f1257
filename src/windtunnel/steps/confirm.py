"""A person's yes to exactly one plan, and the config files that it said yes to."""

from __future__ import annotations

import getpass
import re
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from windtunnel.domain.manifest import Confirmation
from windtunnel.domain.plan import ConfigFile, ConfigPlan, Plan, plan_identity
from windtunnel.domain.receipt import receipt
from windtunnel.domain.receipt_text import to_text
from windtunnel.domain.role import EXECUTOR
from windtunnel.errors import Drifted, InputWrong, NotConfirmed
from windtunnel.store.configs import describe_file
from windtunnel.store.plans import read_plan

__all__ = ["check_inputs", "confirm_command", "copy_inputs", "require_confirmation"]

_IDENTITY = re.compile(r"^sha256:[0-9a-f]{64}$")
_TYPED = 8
_How = Literal["flag", "terminal", "yes"]


def require_confirmation(
    plan_path: Path,
    *,
    confirm: str | None,
    yes: bool,
    ask: Callable[[str], str] | None,
    operator: str | None,
    now: str,
    show: Callable[[str], None] | None = None,
) -> Confirmation:
    """The confirmation of the plan in this file, or NotConfirmed with the command to give (nothing was started).

    The plan file is looked at first (InputWrong). `confirm`: the identity as typed on the command line, which wins
    over the others. `yes`: only for a plan without any role but the executor; `show` is given the receipt. `ask`: given
    the receipt, returns what a person typed on the terminal; None without a terminal.
    """
    plan = read_plan(plan_path)
    identity = plan_identity(plan)
    if plan.planIdentity != identity:
        raise NotConfirmed(
            f"{plan_path} was changed after it was written: it says {plan.planIdentity}, its content is {identity}. "
            "Plan again and confirm the new plan; nothing was started."
        )
    if confirm is not None:
        how = _by_identity(confirm, plan_path, identity)
    elif yes:
        how = _by_yes(plan, plan_path, identity, show)
    elif ask is not None:
        how = _by_terminal(ask(to_text(receipt(plan))), plan_path, identity)
    else:
        raise NotConfirmed(f"not confirmed; nothing was started. {_say(plan_path, identity)}")
    return Confirmation(identity=identity, time=now, operator=operator or login_name(), how=how)


def confirm_command(plan_path: Path | str, identity: str) -> str:
    """The exact command that confirms and runs a plan."""
    return shlex.join(["windtunnel", "run", str(plan_path), "--confirm", identity])


def login_name() -> str:
    """Who runs this; `unknown` for a user id without a name."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown"


def _say(plan_path: Path, identity: str) -> str:
    return f"If the receipt is right, confirm with:\n{confirm_command(plan_path, identity)}"


def _by_identity(confirm: str, plan_path: Path, identity: str) -> _How:
    if not _IDENTITY.match(confirm):
        raise NotConfirmed(
            f"--confirm {confirm!r} is not an identity (sha256: and 64 small hex digits); nothing was started. "
            + _say(plan_path, identity)
        )
    if confirm != identity:
        raise NotConfirmed(
            f"--confirm {confirm} is not this plan's identity; nothing was started. {_say(plan_path, identity)}"
        )
    return "flag"


def _by_yes(plan: Plan, plan_path: Path, identity: str, show: Callable[[str], None] | None) -> _How:
    others = sorted({role.name for config in plan.configs for role in config.roles} - {EXECUTOR})
    if others:
        raise NotConfirmed(
            f"--yes is not enough for a plan with the roles {', '.join(others)}; nothing was started. "
            + _say(plan_path, identity)
        )
    if show is not None:
        show(to_text(receipt(plan)))
    return "yes"


def _by_terminal(typed: str, plan_path: Path, identity: str) -> _How:
    if typed.strip().lower() != identity.removeprefix("sha256:")[:_TYPED]:
        raise NotConfirmed(
            f"the typed digits are not the first {_TYPED} of the plan's identity; nothing was started. "
            + _say(plan_path, identity)
        )
    return "terminal"


def check_inputs(plan: Plan) -> None:
    """Compare the config files on disk with the plan. Raises Drifted naming the first changed one and both hashes."""
    for config in plan.configs:
        for file in config.files:
            _check_file(config, file, Path(config.directory))


def copy_inputs(plan: Plan, target: Path) -> None:
    """Copy every planned config file to `<target>/<config>/` and hash the copies: editing a config later changes
    nothing. Raises Drifted when a copy is not what was planned."""
    for config in plan.configs:
        directory = target / config.name
        directory.mkdir(parents=True, exist_ok=True)
        for file in config.files:
            _copy(Path(config.directory) / file.path, directory / file.path, config, file)
            _check_file(config, file, directory)


def _copy(source: Path, target: Path, config: ConfigPlan, file: ConfigFile) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        shutil.copyfile(source, target)
    except FileNotFoundError as error:
        raise Drifted(f"config {config.name}", source, _told(file), "missing") from error
    except OSError as error:
        raise InputWrong(f"{error.filename or source}: cannot be copied into the run: {error.strerror}.") from error
    target.chmod(0o755 if file.executable else 0o644)


def _check_file(config: ConfigPlan, file: ConfigFile, directory: Path) -> None:
    path = directory / file.path
    if not path.is_file():
        raise Drifted(f"config {config.name}", path, _told(file), "missing")
    found = describe_file(directory, file.path)
    if (found.sha256, found.executable) != (file.sha256, file.executable):
        raise Drifted(f"config {config.name}", path, _told(file), _told(found))


def _told(file: ConfigFile) -> str:
    return file.sha256 + (" (executable)" if file.executable else "")
