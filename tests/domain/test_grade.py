"""Verifier output to a grade, or to the reason why there is none."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windtunnel.domain.grade import Graded, Reward, Ungraded, grade, read_reward, read_tests
from windtunnel.domain.outcome import RULES, Reason, Status
from windtunnel.domain.reports import MAX_REPORT_BYTES, read_report
from windtunnel.domain.result import TestCounts

MALFORMED = Reason.REWARD_MALFORMED


def ctrf(*statuses: str, **summary: int) -> bytes:
    tests = [{"name": f"t{n}", "status": status, "duration": 1} for n, status in enumerate(statuses)]
    return json.dumps({"results": {"tool": {"name": "x"}, "summary": summary, "tests": tests}}).encode()


def junit(*bodies: str) -> bytes:
    cases = "".join(f'<testcase name="t">{body}</testcase>' for body in bodies)
    return f'<?xml version="1.0"?><testsuites tests="9"><testsuite>{cases}</testsuite></testsuites>'.encode()


def reward(**files: bytes) -> Reward | Ungraded:
    return read_reward({name.replace("_", "."): data for name, data in files.items()})


def reason(found: object) -> Reason | None:
    return found.reason if isinstance(found, Ungraded) else None


@pytest.mark.parametrize(
    ("data", "binary", "partial"),
    [
        (b'{"reward": 1}', 1, 1.0),
        (b'{"reward": 0.999, "partial": 0.5}', 0, 0.5),
        (b'{"reward": 0, "partial": 0.25, "f2p": 3, "other": -7}', 0, 0.25),
        (b'{"reward": 1.0, "partial": 1}', 1, 1.0),
        (b' {"reward": -0.0}\n', 0, 0.0),
    ],
)
def test_reward_json_gives_score_and_partial(data: bytes, binary: int, partial: float) -> None:
    found = reward(reward_json=data)

    assert isinstance(found, Reward)
    assert (found.binary, found.partial) == (binary, partial)
    assert found.detail == {key: float(value) for key, value in json.loads(data).items()}


@pytest.mark.parametrize(
    ("data", "score"),
    [(b"1", 1.0), (b" 0.5 \n\n", 0.5), (b"1.0\n\n", 1.0), (b"1e-1", 0.1), (b"+.5", 0.5), (b"0.", 0.0)],
)
def test_reward_txt_is_one_number(data: bytes, score: float) -> None:
    found = reward(reward_txt=data)

    assert isinstance(found, Reward)
    assert (found.score, found.partial, found.source) == (score, score, "reward.txt")


@pytest.mark.parametrize(
    "data",
    [b"", b"\n", b"nan", b"NaN", b"inf", b"-Infinity", b"1e309", b"abc", b"1\n0", b"1 1", b"0x1", b"1_0", b"True",
     b"\xff", "\u0661".encode(), b"1,0", b'{"reward": 1}', b"1" * 300_000],
)  # fmt: skip
def test_anything_else_in_reward_txt_is_malformed(data: bytes) -> None:
    assert reason(reward(reward_txt=data)) is MALFORMED


@pytest.mark.parametrize(
    "data",
    [b"", b"null", b"1", b"[1]", b"{}", b'{"reward": null}', b'{"reward": "1"}', b'{"reward": true}',
     b'{"reward": {"a": 1}}', b'{"reward": [1]}', b'{"reward": NaN}', b'{"reward": Infinity}', b'{"reward": 1e309}',
     b'{"reward": 1, "x": "y"}', b'{"reward": 1, "x": null}', b'{"reward": 0, "reward": 1}', b'{"score": 1}',
     b'{"reward": 1', b"\xff\xfe",
     b'{"reward": 1' + b"0" * 400 + b"}", b'{"a":' * 20000, b'{"reward": 1, "' + b"k" * 300 + b'": 1}',
     json.dumps({"reward": 1, **{f"k{n}": 1 for n in range(500)}}).encode(), b'{"reward": 1' + b" " * 300_000 + b"}"],
)  # fmt: skip
def test_anything_else_in_reward_json_is_malformed(data: bytes) -> None:
    assert reason(reward(reward_json=data)) is MALFORMED


def test_reward_json_wins_even_when_it_is_bad() -> None:
    both = {"reward.txt": b"1", "reward.json": b'{"reward": 0}'}
    bad = {"reward.txt": b"1", "reward.json": b""}

    found = read_reward(both)
    assert isinstance(found, Reward)
    assert found.binary == 0
    assert reason(read_reward(bad)) is MALFORMED


def test_only_the_top_level_file_counts() -> None:
    found = read_reward({"reports/reward.json": b'{"reward": 1}', "a/b/reward.txt": b"1", "Reward.json": b"1"})

    assert isinstance(found, Ungraded)
    assert found.reason is Reason.REWARD_MISSING
    assert "reports/reward.json" in found.detail
    assert reason(read_reward({})) is Reason.REWARD_MISSING


@pytest.mark.parametrize("data", [b"-1", b"1.0001", b"-0.5"])
def test_a_reward_outside_of_the_range_is_no_grade(data: bytes) -> None:
    assert reason(reward(reward_txt=data)) is Reason.REWARD_OUT_OF_RANGE


def test_the_range_holds_for_partial_too() -> None:
    assert reason(reward(reward_json=b'{"reward": 0, "partial": -1}')) is Reason.REWARD_OUT_OF_RANGE


def test_a_declared_range_makes_minus_one_legal() -> None:
    found = read_reward({"reward.txt": b"-1"}, reward_range=(-1.0, 1.0))

    assert isinstance(found, Reward)
    assert (found.score, found.binary) == (-1.0, 0)


def test_counts_come_from_the_list_not_from_the_summary() -> None:
    data = ctrf("passed", "failed", "skipped", "pending", "other", "passed", tests=99, passed=99)

    assert read_tests({"ctrf.json": data}) == TestCounts(passed=2, failed=2, skipped=2)


@pytest.mark.parametrize("name", ["ctrf.json", "reports/ctrf.json", "new-ctrf.json", "reports/new_ctrf.json"])
def test_ctrf_is_found_where_graders_put_it(name: str) -> None:
    assert read_tests({name: ctrf("passed")}) == TestCounts(passed=1, failed=0, skipped=0)


def test_junit_files_are_summed() -> None:
    files = {
        "junit.xml": junit("", "<failure/>", "<skipped/>", "<system-out>x</system-out>"),
        "reports/b.xml": junit("<error/>", "<failure/><error/>", "<skipped/><failure/>"),
        "deep/er/c.xml": junit(""),
    }

    assert read_tests(files) == TestCounts(passed=2, failed=4, skipped=1)


def test_ctrf_comes_before_junit() -> None:
    assert read_report({"x.xml": junit(""), "ctrf.json": ctrf("failed")}).files == ("ctrf.json",)


@pytest.mark.parametrize(
    "data",
    [b"", b"not xml", b"<html></html>", b"<testsuite><testcase></testsuite>", junit("")[:-5],
     b'<!DOCTYPE x [<!ENTITY a "aaaa">]><testsuite><testcase name="&a;"/></testsuite>',
     '<!DOCTYPE x><testsuite><testcase/></testsuite>'.encode("utf-16")],
)  # fmt: skip
def test_a_bad_junit_file_is_a_problem_not_a_count(data: bytes) -> None:
    found = read_report({"a.xml": data})

    assert found.counts is None
    assert len(found.problems) == 1


@pytest.mark.parametrize(
    "data",
    [b"", b"{}", b"[]", b'{"results": {"tests": [{"name": "x"}]}}', b'{"results": {"tests": 3}}', b"[" * 100_000],
)
def test_a_bad_ctrf_file_is_a_problem_not_a_count(data: bytes) -> None:
    found = read_report({"ctrf.json": data})

    assert found.counts is None
    assert found.problems[0].startswith("ctrf.json: ")


def test_a_report_that_is_too_big_is_not_read() -> None:
    assert read_tests({"ctrf.json": b" " * (MAX_REPORT_BYTES + 1)}) is None


def test_a_grade_has_reward_detail_and_tests() -> None:
    found = grade({"reward.json": b'{"reward": 0, "partial": 0.5, "f2p": 1}', "ctrf.json": ctrf("passed", "failed")})

    assert isinstance(found, Graded)
    assert (found.reward_binary, found.reward_partial, found.detail["f2p"]) == (0, 0.5, 1.0)
    assert found.tests == TestCounts(passed=1, failed=1, skipped=0)
    assert not found.apply_failed


@pytest.mark.parametrize("report", [{"ctrf.json": ctrf(passed=9)}, {"ctrf.json": ctrf("skipped")}, {"a.xml": junit()}])
def test_a_report_in_which_no_test_ran_is_no_grade(report: dict[str, bytes]) -> None:
    assert reason(grade({"reward.txt": b"1", **report})) is Reason.NO_TESTS_RAN


def test_a_patch_that_does_not_apply_is_a_graded_zero_and_says_so() -> None:
    found = grade({"reward.json": b'{"reward": 0, "apply_failed": 1}', "ctrf.json": ctrf()})

    assert isinstance(found, Graded)
    assert (found.reward_binary, found.apply_failed) == (0, True)


def test_no_report_leaves_the_counts_unknown() -> None:
    found = grade({"reward.txt": b"1"})

    assert isinstance(found, Graded)
    assert found.tests is None


def test_an_unreadable_report_is_noted_and_the_reward_stands() -> None:
    found = grade({"reward.txt": b"1", "ctrf.json": b"{"})

    assert isinstance(found, Graded)
    assert found.tests is None
    assert found.notes


@given(
    st.dictionaries(
        st.sampled_from(["reward.json", "reward.txt", "ctrf.json", "junit.xml"]),
        st.binary(max_size=60) | st.from_regex(rb"\{\"reward\": [-+0-9.eE]{1,6}\}", fullmatch=True),
    )
)
def test_any_bytes_give_a_finite_grade_or_a_reason(files: dict[str, bytes]) -> None:
    found = grade(files)

    if isinstance(found, Graded):
        assert found.reward_binary in (0, 1)
        assert 0.0 <= found.reward_partial <= 1.0
    else:
        assert RULES[found.reason].status is Status.INVALID
