"""Every way windtunnel says no, and the exit code each one ends the program with.

    WindtunnelError
    +-- InputWrong (1)         the user's input is wrong: a flag, a file, a name
    |   +-- FileDamaged        a file of ours is not what it must be (torn, foreign, newer schema)
    |   +-- NotBuiltYet        a flag or a config asks for a part that does not exist yet
    |   +-- EngineAbsent       the environment that was asked for cannot work on this machine
    +-- NotVerified (2)        finished, but a claim does not hold or a cell is not valid
    |   +-- SmokeFailed        a config's first cell broke its contract
    +-- NotConfirmed (3)       nobody said yes to exactly this plan
    +-- Stopped (4)            the world is not as planned: no new cell may start
    |   +-- Drifted            an input changed between plan and use
    |   +-- PreflightFailed    a check before the first model call failed
    +-- Paused (75)            the same command goes on later
    +-- AttemptFault           not for users: one attempt cannot go on, with its reason code

Only `cli/main.py` turns them into text and an exit code. A message is one line: what happened, to which
file, and what to do next.
"""

from __future__ import annotations

from pathlib import Path

__all__ = [
    "AttemptFault",
    "Drifted",
    "EngineAbsent",
    "FileDamaged",
    "InputWrong",
    "NotBuiltYet",
    "NotConfirmed",
    "NotVerified",
    "Paused",
    "PreflightFailed",
    "SmokeFailed",
    "Stopped",
    "WindtunnelError",
]


class WindtunnelError(Exception):
    """The base: one clear line for the user and an exit code."""

    exit_code = 1

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class InputWrong(WindtunnelError):
    """The user's input is wrong; nothing was started."""


class FileDamaged(InputWrong):
    """A file is not what it must be."""

    def __init__(self, path: Path, found: str, remedy: str) -> None:
        super().__init__(f"{path}: {found}. {remedy}")
        self.path = path
        self.found = found


class NotBuiltYet(InputWrong):
    """The part behind a flag or a config field does not exist yet; ignoring it would be a lie."""

    def __init__(self, what: str, where: str) -> None:
        super().__init__(f"{what} is not built yet ({where}); remove it to go on")


class EngineAbsent(InputWrong):
    """The chosen environment cannot work here."""

    def __init__(self, environment: str, found: str, remedy: str) -> None:
        super().__init__(f"environment {environment}: {found}. {remedy}")


class NotVerified(WindtunnelError):
    """Finished, but something does not hold."""

    exit_code = 2


class SmokeFailed(NotVerified):
    """A config's first cell did not keep its contract; no batch cell was started."""


class NotConfirmed(WindtunnelError):
    """The plan was not confirmed by its identity; nothing was started."""

    exit_code = 3


class Stopped(WindtunnelError):
    """The run may not start new cells until a person has looked."""

    exit_code = 4


class Drifted(Stopped):
    """An input is no longer what the plan approved."""

    def __init__(self, what: str, where: Path | str, planned: str, now: str) -> None:
        super().__init__(
            f"plan drifted: {what} ({where}): planned {planned}, now {now}. "
            "Restore the file, or plan again and confirm the new plan."
        )
        self.what = what
        self.where = str(where)
        self.planned = planned
        self.now = now


class PreflightFailed(Stopped):
    """A check before the first model call failed; nothing was spent."""


class Paused(WindtunnelError):
    """The run stopped in good order; the same command goes on."""

    exit_code = 75


class AttemptFault(WindtunnelError):
    """One attempt cannot go on. Carries the reason code of the outcome table, never reaches a user raw."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail
