"""Which tasks of a root a plan takes: pure choices over the sorted list of ids, each refusing to choose nothing.

The sample ranks ids by a hash of seed and id instead of a random generator, so that it is the same on every Python
and file system, and a smaller sample of a seed lies inside a larger one (its cells are reused).
"""

from __future__ import annotations

import difflib
import hashlib
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence

from windtunnel.domain.cell import folder
from windtunnel.errors import InputWrong

__all__ = ["all_of", "named", "sampled", "sliced"]

_SPAN = re.compile(r"^(\d{0,9}):(\d{0,9})$")


def all_of(known: Iterable[str], where: str) -> tuple[str, ...]:
    """Every id, sorted. Raises InputWrong when there is none."""
    return _checked(sorted(known), where)


def named(known: Iterable[str], wanted: Sequence[str], where: str) -> tuple[str, ...]:
    """Exactly these ids, in their order. Raises InputWrong for none, unknown, repeated and impossible ids."""
    here = sorted(known)
    for task in wanted:
        problem = folder(task)
        if problem is not None:
            raise InputWrong(f"task id {task!r} cannot be used: {problem}.")
        if task not in here:
            raise InputWrong(f"unknown task {task!r} in {where}: {_near(task, here)}")
    repeated = [task for task, count in Counter(wanted).items() if count > 1]
    if repeated:
        raise InputWrong(f"task {repeated[0]!r} is named twice. Name each task once.")
    return _checked(list(wanted), where)


def sliced(known: Iterable[str], span: str, where: str) -> tuple[str, ...]:
    """`A:B`, counted from 0 and half open, over the sorted ids; an end left out means the first or the last."""
    here = sorted(known)
    match = _SPAN.match(span)
    if match is None:
        raise InputWrong(f"--range {span!r}: expected A:B with whole numbers from 0, such as 0:5.")
    start, stop = int(match[1] or 0), int(match[2] or len(here))
    if stop > len(here):
        remedy = f"Use {start}: for the rest." if start < len(here) else f"Positions are 0 to {len(here) - 1}."
        raise InputWrong(f"--range {span}: {where} holds {len(here)} tasks. {remedy if here else 'Add some.'}")
    return _checked(here[start:stop], f"{where} (--range {span})")


def sampled(known: Iterable[str], count: int, seed: int, where: str) -> tuple[str, ...]:
    """`count` ids chosen by the seed, sorted. Raises InputWrong when there are not that many."""
    here = sorted(known)
    if not 1 <= count <= len(here):
        raise InputWrong(f"--sample {count}: {where} holds {len(here)} tasks. Choose 1 to {len(here)}.")
    ranked = sorted(here, key=lambda task: hashlib.sha256(f"{seed}\0{task}".encode("utf-8", "surrogatepass")).digest())
    return _checked(sorted(ranked[:count]), where)


def _checked(chosen: list[str], where: str) -> tuple[str, ...]:
    """Not empty, and no two ids that one folder would hold on some file system."""
    if not chosen:
        raise InputWrong(f"no tasks matched in {where}. A plan needs at least one task.")
    seen: dict[str, str] = {}
    for task in chosen:
        twin = seen.setdefault(unicodedata.normalize("NFC", task).casefold(), task)
        if twin != task:
            raise InputWrong(f"tasks {twin!r} and {task!r} differ only in case or Unicode form. Rename one.")
    return tuple(chosen)


def _near(task: str, here: list[str]) -> str:
    near = difflib.get_close_matches(task, here, n=3)
    if near:
        return "did you mean " + ", ".join(map(repr, near)) + "?"
    return (
        f"there are {len(here)}: " + ", ".join(here[:5]) + (", ..." if len(here) > 5 else "") if here else "it is empty"
    )
