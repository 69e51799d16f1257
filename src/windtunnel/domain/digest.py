"""Strict JSON and the identities made from it.

Strict means: no NaN or Infinity, UTF-8, lone surrogates escaped (agents print them). Canonical adds sorted
keys and no white space; an identity is `sha256:` plus the hex digest of the canonical bytes.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from typing import Any, NoReturn, TypeVar

import msgspec

__all__ = ["canonical", "decode", "identity", "sha256_bytes", "to_json", "to_line"]

T = TypeVar("T")
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


def _dump(value: object, **options: Any) -> bytes:
    builtins = msgspec.to_builtins(value, str_keys=True)
    text = json.dumps(builtins, ensure_ascii=False, allow_nan=False, **options)
    return _LONE_SURROGATE.sub(lambda m: f"\\u{ord(m[0]):04x}", text).encode("utf-8")


def canonical(value: object) -> bytes:
    """The one byte form of a JSON value. Raises ValueError for NaN and Infinity."""
    return _dump(value, sort_keys=True, separators=(",", ":"))


def to_line(value: object) -> bytes:
    """One compact line for an append-only log, newline included."""
    return _dump(value, separators=(",", ":")) + b"\n"


def to_json(value: object) -> bytes:
    """Readable JSON for files that people open, newline included."""
    return _dump(value, indent=1) + b"\n"


def sha256_bytes(data: bytes) -> str:
    """`sha256:<64 hex>` of raw bytes."""
    return "sha256:" + hashlib.sha256(data).hexdigest()


def identity(value: object) -> str:
    """`sha256:<64 hex>` of the canonical form of a JSON value."""
    return sha256_bytes(canonical(value))


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not allowed in JSON")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is not a finite number")
    return number


def decode(data: bytes | str, type_: type[T]) -> T:
    """Parse strict JSON into a type. Raises ValueError (msgspec.ValidationError is one) with the place."""
    text = data if isinstance(data, str) else str(data, "utf-8")  # json.loads would also take UTF-16
    return msgspec.convert(json.loads(text, parse_constant=_refuse_constant, parse_float=_finite), type_)
