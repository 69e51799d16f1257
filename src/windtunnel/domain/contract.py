"""A smoke contract (`smoke.json`): what a config's first cell must show, beyond being valid.

The file is written by people, so that every mistake in it is refused by name at planning: an unknown key, a glob
that leaves the cell, a marker that is no token, an assertion on a text's size (a stripped newline once threw away
a healthy preflight). docs/reference/smoke-contracts.md describes every key.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Any, Literal

import msgspec

from windtunnel.domain.digest import decode
from windtunnel.domain.plain_text import plain_line
from windtunnel.errors import InputWrong

__all__ = [
    "Assertion",
    "Contract",
    "ExtensionMarker",
    "JsonRecords",
    "RepoText",
    "TextRule",
    "UsageRecords",
    "Verdict",
    "bounded",
    "parse_contract",
]

_MARKER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:-]*")
_SIZE_FIELD = re.compile(r"(^|_)(chars?|char_count|characters|length|len|line_count|lines)$", re.IGNORECASE)
_FOUND_MAX = 200

_Globs = Annotated[tuple[str, ...], msgspec.Meta(min_length=1)]
_Minimum = Annotated[int, msgspec.Meta(ge=1)]
_Text = Annotated[str, msgspec.Meta(min_length=1)]


class UsageRecords(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Records that hold token counts above zero and have these values (dotted paths)."""

    globs: _Globs
    equals: dict[str, Any] = {}
    minimum: _Minimum = 1


class JsonRecords(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Records that have these values; `json`: the file is one value or a list, `jsonl`: one value a line."""

    globs: _Globs
    format: Literal["json", "jsonl"]
    equals: dict[str, Any] = {}
    minimum: _Minimum = 1


class ExtensionMarker(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A token that a config's extension leaves behind. `extension`: path below the config's `extensions/`."""

    extension: str
    globs: _Globs
    marker: str


class TextRule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    globs: _Globs
    text: _Text


class RepoText(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`path`: a file of the task's repository; its added lines in the patch are searched."""

    path: str
    text: _Text


class Contract(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`smoke.json` as it stands in the file."""

    minResultValues: dict[str, int | float] = {}
    equalsResultValues: dict[str, Any] = {}
    requireFiles: tuple[str, ...] = ()
    requireRepoFiles: tuple[str, ...] = ()
    requireUsageRecords: tuple[UsageRecords, ...] = ()
    requireJsonRecords: tuple[JsonRecords, ...] = ()
    requireExtensionMarkers: tuple[ExtensionMarker, ...] = ()
    forbidExtensionMarkers: tuple[ExtensionMarker, ...] = ()
    requireText: tuple[TextRule, ...] = ()
    forbidText: tuple[TextRule, ...] = ()
    requireRepoText: tuple[RepoText, ...] = ()
    forbidRepoText: tuple[RepoText, ...] = ()


class Assertion(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that was looked at. `passed` None: it does not apply to this subject. `found`: at most 200
    characters without control characters, it may hold an agent's text."""

    kind: str
    target: str
    passed: bool | None
    expected: str
    found: str


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """`smoke-verdict.json`. `contract_sha256` is `none` for a config without a contract; `result_sha256` is the hash
    of the result.json that was judged, None when there was none. `judged_at`: UTC, ms, Z."""

    schemaVersion: int = 1
    config: str
    cell: str
    run_id: str
    config_fingerprint: str
    subject_bundle: str
    model: str | None
    thinking: str
    contract_sha256: str
    result_sha256: str | None
    assertions: tuple[Assertion, ...]
    passed: bool
    judged_at: str


def bounded(text: object) -> str:
    """Text that is safe to show: one line of at most 200 characters, without control characters."""
    clean = plain_line(str(text))
    return clean if len(clean) <= _FOUND_MAX else clean[: _FOUND_MAX - 1] + "…"


def parse_contract(data: bytes, where: str) -> Contract:
    """Read a contract. `where` names the file in messages. Raises InputWrong with every mistake found."""
    try:
        contract = decode(data, Contract)
    except (ValueError, RecursionError) as error:
        raise InputWrong(f"{where}: not a smoke contract: {error}. See docs/reference/smoke-contracts.md") from error
    mistakes = list(_mistakes(contract))
    if mistakes:
        raise InputWrong(f"{where}: {'; '.join(mistakes)}. See docs/reference/smoke-contracts.md")
    return contract


def _mistakes(contract: Contract) -> Iterator[str]:
    for kind, path in _paths(contract):
        wrong = _unsafe(path)
        if wrong:
            yield f"{kind}: {path!r} {wrong}"
    for kind, field in _fields(contract):
        if not all(field.split(".")):
            yield f"{kind}: {field!r} is not a dotted path"
        elif _SIZE_FIELD.search(field.rsplit(".", 1)[-1]):
            yield f"{kind}: {field!r} is the size of a text; assert on what it says instead"
    for rule in (*contract.requireExtensionMarkers, *contract.forbidExtensionMarkers):
        if not _MARKER.fullmatch(rule.marker):
            yield f"marker {rule.marker!r} is not one token of letters, digits and _ . : -"


def _unsafe(path: str) -> str | None:
    if not path or "\0" in path:
        return "is empty or holds a zero byte"
    if path.startswith(("/", "~")) or "\\" in path or re.match(r"[A-Za-z]:", path):
        return "is not a relative path with '/'"
    return "leaves its directory with '..'" if ".." in path.split("/") else None


def _paths(contract: Contract) -> Iterator[tuple[str, str]]:
    yield from (("requireFiles", glob) for glob in contract.requireFiles)
    yield from (("requireRepoFiles", path) for path in contract.requireRepoFiles)
    for kind in ("requireUsageRecords", "requireJsonRecords", "requireText", "forbidText"):
        yield from ((kind, glob) for rule in getattr(contract, kind) for glob in rule.globs)
    for kind in ("requireExtensionMarkers", "forbidExtensionMarkers"):
        yield from ((kind, path) for rule in getattr(contract, kind) for path in (rule.extension, *rule.globs))
    for kind in ("requireRepoText", "forbidRepoText"):
        yield from ((kind, rule.path) for rule in getattr(contract, kind))


def _fields(contract: Contract) -> Iterator[tuple[str, str]]:
    yield from (("minResultValues", field) for field in contract.minResultValues)
    yield from (("equalsResultValues", field) for field in contract.equalsResultValues)
    for kind in ("requireUsageRecords", "requireJsonRecords"):
        yield from ((kind, field) for rule in getattr(contract, kind) for field in rule.equals)
