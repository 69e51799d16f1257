"""The smoke contract: what a person may write, and what each assertion says on known evidence."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from fnmatch import fnmatch
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from windtunnel.domain.contract import Assertion, Contract, bounded, parse_contract
from windtunnel.domain.contract_checks import Malformed, check_contract, lookup, same_json
from windtunnel.domain.patch_reading import FileChange, read_patch
from windtunnel.errors import InputWrong

PATCH = b"""diff --git a/src/app.py b/src/app.py
index 1..2 100644
--- a/src/app.py
+++ b/src/app.py
@@ -1,3 +1,4 @@
 import os
-print("old")
+print("new")
+++ b/not-a-file.py
 end
diff --git a/gone.py b/gone.py
deleted file mode 100644
--- a/gone.py
+++ /dev/null
@@ -1 +0,0 @@
-bye
diff --git "a/na\\303\\257ve.txt" "b/na\\303\\257ve.txt"
new file mode 100644
--- /dev/null
+++ "b/na\\303\\257ve.txt"
@@ -0,0 +1 @@
+hello
\\ No newline at end of file
"""


class Files:
    """Evidence held in memory: name -> bytes."""

    def __init__(self, files: dict[str, bytes], patch: bytes | None = None, extensions: tuple[str, ...] = ()) -> None:
        self._files, self._patch, self._extensions = files, patch, extensions

    def result(self) -> Any:
        return json.loads(self._files["result.json"]) if "result.json" in self._files else None

    def files(self, globs: Iterable[str]) -> list[str]:
        return [name for glob in globs for name in sorted(self._files) if fnmatch(name, glob)]

    def records(self, name: str, form: str) -> Iterator[Any]:
        data = self._files[name]
        try:
            values = [json.loads(line) for line in data.splitlines()] if form == "jsonl" else json.loads(data)
        except ValueError as error:
            raise Malformed(str(error)) from error
        yield from values if isinstance(values, list) else [values]

    def holds(self, name: str, pattern: re.Pattern[bytes]) -> bool | None:
        return bool(pattern.search(self._files[name]))

    def patch(self) -> dict[str, FileChange] | None:
        return None if self._patch is None else read_patch(self._patch)

    def extensions(self) -> tuple[str, ...]:
        return self._extensions


def one(rules: dict[str, Any], evidence: Files) -> Assertion:
    (assertion,) = check_contract(parse_contract(json.dumps(rules).encode(), "smoke.json"), evidence)
    return assertion


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ('{"requireFile": []}', "requireFile"),
        ('{"requireFiles": ["/etc/passwd"]}', "/etc/passwd"),
        ('{"requireFiles": ["session/../../x"]}', "session/../../x"),
        ('{"requireFiles": [""]}', "requireFiles"),
        ('{"requireText": [{"globs": [], "text": "x"}]}', "globs"),
        ('{"requireText": [{"globs": ["a"], "text": "x", "regex": true}]}', "regex"),
        ('{"requireJsonRecords": [{"globs": ["a"]}]}', "format"),
        ('{"requireJsonRecords": [{"globs": ["a"], "format": "yaml"}]}', "yaml"),
        ('{"requireUsageRecords": [{"globs": ["a"], "minimum": 0}]}', "minimum"),
        ('{"minResultValues": {"reward": true}}', "minResultValues"),
        ('{"minResultValues": {"reward": NaN}}', "NaN"),
        ('{"equalsResultValues": {"a..b": 1}}', "a..b"),
        ('{"equalsResultValues": {"prompt.char_count": 973}}', "char_count"),
        ('{"requireExtensionMarkers": [{"extension": "a.ts", "globs": ["l"], "marker": "two words"}]}', "two words"),
        ('{"requireExtensionMarkers": [{"extension": "../a.ts", "globs": ["l"], "marker": "m"}]}', "../a.ts"),
        ('{"requireRepoText": [{"path": "/a", "text": "x"}]}', "/a"),
        ("[]", "smoke.json"),
        ("{", "smoke.json"),
        ("[" * 100_000, "smoke.json"),
    ],
)
def test_a_mistake_in_a_contract_is_refused_by_name(text: str, names: str) -> None:
    with pytest.raises(InputWrong) as refused:
        parse_contract(text.encode(), "configs/a/smoke.json")

    assert names in refused.value.message
    assert "configs/a/smoke.json" in refused.value.message


def test_every_mistake_is_told_at_once() -> None:
    with pytest.raises(InputWrong) as refused:
        parse_contract(b'{"requireFiles": ["/a", "../b"]}', "smoke.json")

    assert "/a" in refused.value.message and "../b" in refused.value.message


def test_an_empty_contract_asserts_nothing() -> None:
    assert check_contract(parse_contract(b"{}", "smoke.json"), Files({})) == ()


@pytest.mark.parametrize(
    ("rule", "passes"),
    [
        ({"minResultValues": {"reward_partial": 0.5}}, True),
        ({"minResultValues": {"reward_partial": 0.6}}, False),
        ({"minResultValues": {"unknown": 0}}, False),
        ({"minResultValues": {"cost.usd": 0}}, False),
        ({"minResultValues": {"agent.settled": 0}}, False),
        ({"equalsResultValues": {"agent.settled": True}}, True),
        ({"equalsResultValues": {"agent.settled": 1}}, False),
        ({"equalsResultValues": {"reward_binary": 1}}, True),
        ({"equalsResultValues": {"reward_binary": 1.0}}, True),
        ({"equalsResultValues": {"reward_binary": True}}, False),
        ({"equalsResultValues": {"reward_binary": "1"}}, False),
        ({"equalsResultValues": {"cost.usd": None}}, True),
        ({"equalsResultValues": {"cost.usd.x": None}}, False),
        ({"equalsResultValues": {"nowhere": None}}, False),
        ({"equalsResultValues": {"flags.0": "empty_patch"}}, True),
        ({"equalsResultValues": {"flags.1": "empty_patch"}}, False),
        ({"equalsResultValues": {"flags": ["empty_patch"]}}, True),
    ],
)
def test_result_values_are_compared_as_json_values(rule: dict[str, Any], passes: bool) -> None:
    result = {
        "reward_partial": 0.5,
        "reward_binary": 1,
        "agent": {"settled": True},
        "cost": {"usd": None},
        "flags": ["empty_patch"],
    }

    assert one(rule, Files({"result.json": json.dumps(result).encode()})).passed is passes


def test_without_a_result_every_result_assertion_fails() -> None:
    assert one({"equalsResultValues": {"a": None}}, Files({})).passed is False


def test_required_files_name_what_matched() -> None:
    files = Files({"session/a.jsonl": b"", "session/b.jsonl": b""})

    assert one({"requireFiles": ["session/*.jsonl"]}, files).found == "2 file(s): session/a.jsonl, session/b.jsonl"
    assert one({"requireFiles": ["session/*.json"]}, files) == Assertion(
        kind="requireFiles",
        target="session/*.json",
        passed=False,
        expected="at least one file",
        found="no file matches",
    )


@pytest.mark.parametrize(
    ("path", "passes"),
    [("src/app.py", True), ("naïve.txt", True), ("gone.py", False), ("not-a-file.py", False), ("out.bin", True)],
)
def test_a_repository_file_is_in_the_patch_or_among_the_artifacts(path: str, passes: bool) -> None:
    evidence = Files({"artifacts/out.bin": b""}, patch=PATCH)

    assert one({"requireRepoFiles": [path]}, evidence).passed is passes


@pytest.mark.parametrize(
    ("path", "text", "found"),
    [
        ("src/app.py", 'print("new")', True),
        ("src/app.py", 'print("old")', False),
        ("src/app.py", "import os", False),
        ("naïve.txt", "hello", True),
        ("other.py", "hello", False),
    ],
)
def test_repository_text_is_looked_for_among_added_lines_only(path: str, text: str, found: bool) -> None:
    rule, evidence = [{"path": path, "text": text}], Files({}, patch=PATCH)

    assert one({"requireRepoText": rule}, evidence).passed is found
    assert one({"forbidRepoText": rule}, evidence).passed is not found


def test_without_a_patch_nothing_is_known_about_the_repository() -> None:
    for kind in ("requireRepoText", "forbidRepoText"):
        assert one({kind: [{"path": "a", "text": "b"}]}, Files({})).passed is False


def test_records_are_counted_by_their_values() -> None:
    lines = b'{"role":"a","n":1}\n{"role":"a","n":true}\n{"role":"b","n":1}\n'
    evidence = Files({"logs/x.jsonl": lines})

    def passed(**rule: Any) -> bool | None:
        return one({"requireJsonRecords": [{"globs": ["logs/*"], "format": "jsonl", **rule}]}, evidence).passed

    assert passed(equals={"role": "a"}, minimum=2)
    assert not passed(equals={"role": "a"}, minimum=3)
    assert not passed(equals={"role": "a", "n": 1}, minimum=2)


def test_a_malformed_record_fails_even_when_there_are_enough_good_ones() -> None:
    evidence = Files({"logs/x.jsonl": b'{"a":1}\n{"a":1}\n{"a":\n'})

    assertion = one({"requireJsonRecords": [{"globs": ["logs/*"], "format": "jsonl"}]}, evidence)

    assert assertion.passed is False
    assert "logs/x.jsonl" in assertion.found


@pytest.mark.parametrize(
    ("record", "passes"),
    [
        ({"role": "advisor", "tokens": {"input": 5, "output": None}}, True),
        ({"role": "advisor", "usage": {"total_tokens": 5}}, True),
        ({"role": "advisor", "input_tokens": 5}, True),
        ({"role": "advisor", "tokens": {"input": 0}}, False),
        ({"role": "advisor", "tokens": {"input": True}}, False),
        ({"role": "advisor", "tokens": None}, False),
        ({"role": "executor", "tokens": {"input": 5}}, False),
    ],
)
def test_a_usage_record_counts_tokens_above_zero(record: dict[str, Any], passes: bool) -> None:
    evidence = Files({"current/wire.ndjson": json.dumps(record).encode() + b"\n"})
    rule = {"globs": ["current/wire.ndjson"], "equals": {"role": "advisor"}}

    assert one({"requireUsageRecords": [rule]}, evidence).passed is passes


@pytest.mark.parametrize(
    ("text", "there"),
    [("om:ready", True), ("say om:ready.", True), ("xom:ready", False), ("om:ready2", False), ("om_ready", False)],
)
def test_a_marker_is_a_whole_token(text: str, there: bool) -> None:
    evidence = Files({"logs/om.log": text.encode()}, extensions=("om/index.ts",))
    rule = [{"extension": "om", "globs": ["logs/*"], "marker": "om:ready"}]

    assert one({"requireExtensionMarkers": rule}, evidence).passed is there
    assert one({"forbidExtensionMarkers": rule}, evidence).passed is not there


@pytest.mark.parametrize("kind", ["requireExtensionMarkers", "forbidExtensionMarkers"])
def test_a_marker_of_an_extension_that_the_config_does_not_have_fails(kind: str) -> None:
    evidence = Files({"logs/a": b"m"}, extensions=("other.ts",))

    assertion = one({kind: [{"extension": "om.ts", "globs": ["logs/*"], "marker": "m"}]}, evidence)

    assert assertion.passed is False
    assert "no such extension" in assertion.found


def test_forbidden_text_that_was_searched_nowhere_is_no_pass() -> None:
    rule = {"forbidText": [{"globs": ["logs/tpyo.log"], "text": "panic"}]}

    assert one(rule, Files({"logs/typo.log": b""})).found == "no file matches: nothing was searched"
    assert one(rule, Files({"logs/tpyo.log": b""})).passed is True
    assert one(rule, Files({"logs/tpyo.log": b"a panic!"})).passed is False


def test_text_that_could_not_be_read_to_its_end_is_not_taken_as_absent() -> None:
    class Big(Files):
        def holds(self, name: str, pattern: re.Pattern[bytes]) -> bool | None:
            return None

    assert one({"forbidText": [{"globs": ["a"], "text": "x"}]}, Big({"a": b""})).passed is False


def test_what_was_found_is_bounded_and_holds_no_control_characters() -> None:
    result = json.dumps({"text": "\x1b[31mred\u202e" + "x" * 1000}).encode()

    found = one({"equalsResultValues": {"text": "y"}}, Files({"result.json": result})).found

    assert len(found) <= 200
    assert "\x1b" not in found and "\u202e" not in found


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(JSON, JSON)
def test_same_json_is_reflexive_and_symmetric(a: Any, b: Any) -> None:
    assert same_json(a, a)
    assert same_json(a, b) == same_json(b, a)


@given(st.binary(max_size=400))
def test_any_bytes_are_a_contract_or_a_refusal(data: bytes) -> None:
    try:
        contract = parse_contract(data, "smoke.json")
    except InputWrong:
        return
    assert isinstance(contract, Contract)


@given(st.binary(max_size=400) | st.lists(st.sampled_from(PATCH.split(b"\n"))).map(b"\n".join))
def test_any_bytes_are_read_as_a_patch(data: bytes) -> None:
    read_patch(data)


@given(st.text())
def test_bounded_text_is_one_short_line(text: str) -> None:
    shown = bounded(text)

    assert len(shown) <= 200
    assert len(shown.splitlines()) <= 1


def test_a_path_that_is_not_there_names_the_part() -> None:
    with pytest.raises(KeyError, match="c"):
        lookup({"a": {"b": 1}}, "a.c")


def test_a_contract_survives_its_own_json_form() -> None:
    contract = parse_contract(b'{"requireText": [{"globs": ["a"], "text": "b"}]}', "smoke.json")

    assert parse_contract(msgspec.json.encode(contract), "again") == contract
