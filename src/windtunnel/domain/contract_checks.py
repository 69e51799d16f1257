"""Judge a cell against a contract and the checks that every smoke cell must pass. Pure: evidence comes in as a port.

An assertion passes only on something that was read. So a `forbid` rule whose globs match no file fails, as does a
malformed record beside enough good ones: a typo in a glob must never be a pass.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal, Protocol

from windtunnel.domain.contract import (
    Assertion,
    Contract,
    ExtensionMarker,
    JsonRecords,
    RepoText,
    TextRule,
    UsageRecords,
    bounded,
)
from windtunnel.domain.patch_reading import FileChange

__all__ = ["Evidence", "Malformed", "check_contract", "lookup", "same_json"]

Format = Literal["json", "jsonl"]
_ABSENT = object()
_TOKEN_FIELD = re.compile(r"(input|output|reasoning|cache_?read|cache_?write|.*_?tokens?)", re.IGNORECASE)


class Malformed(Exception):
    """A record file that is not what its format says; the text names the place."""


class Evidence(Protocol):
    """What a cell left on disk. Names are relative to the cell directory."""

    def result(self) -> Any:
        """result.json as a JSON value, None when it is not there or not readable."""
        ...

    def files(self, globs: Iterable[str]) -> list[str]:
        """The regular files that match, each once."""
        ...

    def records(self, name: str, form: Format) -> Iterator[Any]:
        """The records of a file. Raises Malformed."""
        ...

    def holds(self, name: str, pattern: re.Pattern[bytes]) -> bool | None:
        """Whether a file holds a pattern; None when it could not be read to its end."""
        ...

    def patch(self) -> Mapping[str, FileChange] | None:
        """The agent's patch by path, None when there is none."""
        ...

    def extensions(self) -> tuple[str, ...]:
        """Paths of the config's files below its `extensions/`, relative to that."""
        ...


def same_json(a: Any, b: Any) -> bool:
    """Equal as JSON values: 1 is 1.0 but never true, nested values alike."""
    if isinstance(a, bool) or isinstance(b, bool):
        return a is b
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same_json(a[key], b[key]) for key in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(same_json, a, b))
    return bool(a == b)


def lookup(value: Any, path: str) -> Any:
    """The value at a dotted path (list items by number). Raises KeyError with the part that is not there."""
    for part in path.split("."):
        if isinstance(value, dict) and part in value:
            value = value[part]
        elif isinstance(value, list) and part.isascii() and part.isdigit() and int(part) < len(value):
            value = value[int(part)]
        else:
            raise KeyError(part)
    return value


def check_contract(contract: Contract, evidence: Evidence) -> tuple[Assertion, ...]:
    """Every assertion of a contract, in the order of its keys."""
    result = evidence.result()
    found = [_minimum(result, path, least) for path, least in contract.minResultValues.items()]
    found += [_equals(result, path, value) for path, value in contract.equalsResultValues.items()]
    found += [_file(evidence, glob) for glob in contract.requireFiles]
    found += [_repo_file(evidence, path) for path in contract.requireRepoFiles]
    found += [_usage_records(evidence, rule) for rule in contract.requireUsageRecords]
    found += [_json_records(evidence, rule) for rule in contract.requireJsonRecords]
    found += [_marker(evidence, rule, wanted=True) for rule in contract.requireExtensionMarkers]
    found += [_marker(evidence, rule, wanted=False) for rule in contract.forbidExtensionMarkers]
    found += [_text(evidence, rule, wanted=True) for rule in contract.requireText]
    found += [_text(evidence, rule, wanted=False) for rule in contract.forbidText]
    found += [_repo_text(evidence, rule, wanted=True) for rule in contract.requireRepoText]
    found += [_repo_text(evidence, rule, wanted=False) for rule in contract.forbidRepoText]
    return tuple(found)


def _assertion(kind: str, target: str, passed: bool, expected: object, found: object) -> Assertion:
    return Assertion(kind=kind, target=target, passed=passed, expected=bounded(expected), found=bounded(found))


def _at(result: Any, path: str) -> Any:
    try:
        return lookup(result, path)
    except KeyError:
        return _ABSENT


def _show(value: Any) -> str:
    return "no such value" if value is _ABSENT else json.dumps(value, ensure_ascii=False)


def _minimum(result: Any, path: str, least: float) -> Assertion:
    value = _at(result, path)
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return _assertion("minResultValues", path, number and value >= least, f"at least {least}", _show(value))


def _equals(result: Any, path: str, wanted: Any) -> Assertion:
    value = _at(result, path)
    passed = value is not _ABSENT and same_json(value, wanted)
    return _assertion("equalsResultValues", path, passed, _show(wanted), _show(value))


def _file(evidence: Evidence, glob: str) -> Assertion:
    names = evidence.files([glob])
    return _assertion("requireFiles", glob, bool(names), "at least one file", _listed(names))


def _listed(names: list[str]) -> str:
    return "no file matches" if not names else f"{len(names)} file(s): {', '.join(names[:3])}"


def _repo_file(evidence: Evidence, path: str) -> Assertion:
    patch = evidence.patch()
    change = None if patch is None else patch.get(path)
    kept = bool(evidence.files([f"artifacts/{_literal(path)}"]))
    there = kept or (change is not None and not change.deleted)
    found = "in the collected artifacts" if kept else _change_word(patch, change)
    return _assertion("requireRepoFiles", path, there, "in the agent's patch or the collected artifacts", found)


def _literal(path: str) -> str:
    return re.sub(r"([*?[])", r"[\1]", path)


def _change_word(patch: Mapping[str, FileChange] | None, change: FileChange | None) -> str:
    if patch is None:
        return "there is no patch"
    if change is None:
        return f"not among the {len(patch)} file(s) of the patch"
    return "deleted by the patch" if change.deleted else "in the patch"


def _usage_records(evidence: Evidence, rule: UsageRecords) -> Assertion:
    def wanted(record: Any) -> bool:
        return _tells_usage(record) and _matches(record, rule.equals)

    return _records("requireUsageRecords", evidence, rule.globs, None, wanted, rule.minimum, rule.equals)


def _json_records(evidence: Evidence, rule: JsonRecords) -> Assertion:
    def wanted(record: Any) -> bool:
        return _matches(record, rule.equals)

    return _records("requireJsonRecords", evidence, rule.globs, rule.format, wanted, rule.minimum, rule.equals)


def _records(
    kind: str, evidence: Evidence, globs: tuple[str, ...], form: Format | None, wanted: Any, least: int, equals: Any
) -> Assertion:
    names, matched, total, broken = evidence.files(globs), 0, 0, ""
    for name in names:
        try:
            for record in evidence.records(name, form or ("json" if name.endswith(".json") else "jsonl")):
                total, matched = total + 1, matched + wanted(record)
        except Malformed as error:
            broken = broken or f"{name}: {error}"
    found = broken or f"{matched} of {total} record(s) in {_listed(names)}"
    expected = f"at least {least} record(s)" + (f" with {equals}" if equals else "")
    return _assertion(kind, ", ".join(globs), not broken and matched >= least, expected, found)


def _matches(record: Any, equals: Mapping[str, Any]) -> bool:
    values = ((_at(record, path), wanted) for path, wanted in equals.items())
    return all(value is not _ABSENT and same_json(value, wanted) for value, wanted in values)


def _tells_usage(record: Any) -> bool:
    """A record tells of usage when it, or its `tokens` or `usage` part, counts tokens above zero."""
    parts = [record] + [_at(record, path) for path in ("tokens", "usage", "message.usage")]
    counts = (v for part in parts if isinstance(part, dict) for k, v in part.items() if _TOKEN_FIELD.fullmatch(k))
    return any(isinstance(v, int | float) and not isinstance(v, bool) and v > 0 for v in counts)


def _marker(evidence: Evidence, rule: ExtensionMarker, *, wanted: bool) -> Assertion:
    kind = "requireExtensionMarkers" if wanted else "forbidExtensionMarkers"
    wanted_path = rule.extension.removeprefix("extensions/").rstrip("/") + "/"
    installed = [name for name in evidence.extensions() if f"{name}/".startswith(wanted_path)]
    target = f"{rule.extension}: {rule.marker}"
    if not installed:
        return _assertion(kind, target, False, "an extension of the config", "the config has no such extension")
    token = re.compile(rb"(?<![A-Za-z0-9_])" + re.escape(rule.marker.encode()) + rb"(?![A-Za-z0-9_])")
    return _searched(kind, target, evidence, rule.globs, token, wanted=wanted)


def _text(evidence: Evidence, rule: TextRule, *, wanted: bool) -> Assertion:
    kind = "requireText" if wanted else "forbidText"
    pattern = re.compile(re.escape(rule.text.encode("utf-8", "surrogatepass")))
    return _searched(kind, f"{', '.join(rule.globs)}: {rule.text}", evidence, rule.globs, pattern, wanted=wanted)


def _searched(
    kind: str, target: str, evidence: Evidence, globs: tuple[str, ...], pattern: re.Pattern[bytes], *, wanted: bool
) -> Assertion:
    names = evidence.files(globs)
    answers = {name: evidence.holds(name, pattern) for name in names}
    hits = [name for name, answer in answers.items() if answer]
    unread = [name for name, answer in answers.items() if answer is None]
    passed = bool(hits) if wanted else bool(names) and not hits and not unread
    if hits:
        found = f"in {_listed(hits)}"
    elif unread:
        found = f"not read to the end: {_listed(unread)}"
    else:
        found = f"nowhere in {_listed(names)}" if names else "no file matches: nothing was searched"
    expected = f"somewhere in {', '.join(globs)}" if wanted else f"nowhere in {', '.join(globs)}"
    return _assertion(kind, bounded(target), passed, expected, found)


def _repo_text(evidence: Evidence, rule: RepoText, *, wanted: bool) -> Assertion:
    kind = "requireRepoText" if wanted else "forbidRepoText"
    patch, target = evidence.patch(), bounded(f"{rule.path}: {rule.text}")
    expected = f"{'among' if wanted else 'not among'} the patch's added lines"
    if patch is None:
        return _assertion(kind, target, False, expected, "there is no patch")
    change = patch.get(rule.path)
    there = change is not None and rule.text.encode("utf-8", "surrogatepass") in b"\n".join(change.added)
    lines = 0 if change is None else len(change.added)
    found = _change_word(patch, change) if change is None else f"{'in' if there else 'not in'} {lines} line(s)"
    return _assertion(kind, target, there is wanted, expected, found)
