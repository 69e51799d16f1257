"""Limits of each task's container and admission: do that many fit on this host at once?"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from windtunnel.domain.task import Limits, Task
from windtunnel.errors import InputWrong
from windtunnel.steps.draft_request import Request

__all__ = ["DEFAULT_MEMORY_MB", "admit", "check_ceilings", "draft_limits", "host_reserve_mb"]

# The watchdog's cap (12 GiB) plus 4 GiB, for tasks that declare no limit.
DEFAULT_MEMORY_MB = (12 + 4) * 1024
_LONGEST_S = 7 * 24 * 3600
_MOST_PIDS = 2**22  # the kernel's own limit of process ids
_RESERVE_MB = 12 * 1024
_RESERVE_SHARE = 0.2


def check_ceilings(request: Request, host_cpus: int | None) -> None:
    """Limits that this host cannot give, or that nobody means. Raises InputWrong naming the flag."""
    if request.cpus is not None and host_cpus is not None and request.cpus > host_cpus:
        raise InputWrong(f"--cpus {request.cpus:g}: this host has {host_cpus} cores. Give at most {host_cpus}.")
    if request.agent_timeout_s is not None and request.agent_timeout_s > _LONGEST_S:
        raise InputWrong(f"--agent-timeout {request.agent_timeout_s:g}: at most {_LONGEST_S} s (7 days).")
    if request.pids is not None and request.pids > _MOST_PIDS:
        raise InputWrong(f"--pids {request.pids}: Linux has at most {_MOST_PIDS} process ids. Give at most that.")


def draft_limits(tasks: Sequence[Task], request: Request) -> dict[str, Limits]:
    """Ceilings by task id: the flag's, else the task's, else the default."""
    return {task.id: _limits(task.limits, request) for task in tasks}


def _limits(own: Limits, request: Request) -> Limits:
    return msgspec.structs.replace(
        own,
        memory_mb=_first(request.memory_mb, own.memory_mb, DEFAULT_MEMORY_MB),
        cpus=request.cpus if request.cpus is not None else own.cpus,
        pids=_first(request.pids, own.pids, 4096),
    )


def _first(*values: int | None) -> int | None:
    return next((value for value in values if value is not None), None)


def host_reserve_mb(request: Request, memory_mb: int) -> int:
    """RAM that stays free for the host: the flag's, else 12 GiB or 20 % of RAM, the smaller."""
    if request.host_reserve_gb is not None:
        return int(request.host_reserve_gb * 1024)
    return min(_RESERVE_MB, int(memory_mb * _RESERVE_SHARE))


def admit(tasks: Sequence[Task], limits: dict[str, Limits], *, workers: int, reserve_mb: int, memory_mb: int) -> int:
    """The largest limit among the containers, in MiB. Raises InputWrong naming the largest --workers that fits."""
    largest, task = max((_need(task, limits[task.id]), task.id) for task in tasks)
    if workers * largest + reserve_mb > memory_mb:
        fits = max(0, (memory_mb - reserve_mb) // largest)
        remedy = (
            f"The largest that fits is --workers {fits}."
            if fits
            else f"Not even one fits: lower --memory-mb (task {task} asks for {largest} MiB) or --host-reserve-gb."
        )
        raise InputWrong(
            f"--workers {workers} x {largest} MiB (task {task}) + {reserve_mb} MiB host reserve is more than this "
            f"host's {memory_mb} MiB. {remedy}"
        )
    return largest


def _need(task: Task, limits: Limits) -> int:
    """A cell's two containers run one after the other; the larger counts."""
    return max(limits.memory_mb or 0, task.verifier_limits.memory_mb or 0)
