from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from windtunnel.domain.digest import canonical, decode, identity, sha256_bytes, to_json, to_line

# Text as an agent prints it: anything, lone surrogates too (but no pair, which JSON reads as one character).
TEXT = st.text(st.characters(exclude_categories=()), max_size=20).filter(
    lambda text: not any("\ud800" <= a <= "\udbff" and "\udc00" <= b <= "\udfff" for a, b in zip(text, text[1:]))  # noqa: B905, RUF007
)
NUMBERS = st.integers(-(2**60), 2**60) | st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
)


@settings(deadline=None)
@given(VALUES)
def test_every_form_reads_back_as_what_was_written(value: Any) -> None:
    for form in (canonical, to_line, to_json):
        assert decode(form(value), object) == value


@settings(deadline=None)
@given(st.dictionaries(TEXT, VALUES, max_size=6))
def test_the_order_of_keys_does_not_matter(value: dict[str, Any]) -> None:
    turned = dict(reversed(list(value.items())))
    assert canonical(turned) == canonical(value)
    assert identity(turned) == identity(value)


@settings(deadline=None)
@given(VALUES)
def test_a_line_is_one_line_of_utf8(value: Any) -> None:
    line = to_line(value)
    assert line.count(b"\n") == 1 and line.endswith(b"\n")
    line.decode("utf-8")


@settings(deadline=None)
@given(VALUES)
def test_canonical_has_no_white_space_outside_texts(value: Any) -> None:
    assert canonical(value) == canonical(json.loads(canonical(value)))
    assert canonical([1, {"b": 2, "a": [True, None]}]) == b'[1,{"a":[true,null],"b":2}]'


def test_known_identity() -> None:
    assert identity({"b": 1, "a": "é"}) == sha256_bytes('{"a":"é","b":1}'.encode())


@pytest.mark.parametrize("value", [float("nan"), float("inf"), [1, {"x": -float("inf")}]])
@pytest.mark.parametrize("form", [canonical, to_line, to_json, identity])
def test_a_number_that_is_none_is_never_written(form: Any, value: Any) -> None:
    with pytest.raises(ValueError):
        form(value)


@pytest.mark.parametrize(
    "data",
    [
        b'{"a":NaN}',
        b"[Infinity]",
        b"[-Infinity]",
        b"[1e309]",
        b"\xff\xfe{\x00}\x00",
        b"\xef\xbb\xbf{}",
        b'{"a":"\xff"}',
        b"",
        b'{"a":1',
        b"{}{}",
    ],
)
def test_what_is_not_strict_json_in_utf8_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError):
        decode(data, object)


def test_a_wrong_type_is_named_with_a_place() -> None:
    with pytest.raises(msgspec.ValidationError, match=r"\$\["):
        decode(b'{"a":"x"}', dict[str, int])
