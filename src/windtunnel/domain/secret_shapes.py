"""What a secret looks like in a file: known prefixes, tell-tale names, long random text.

Config files are copied into runs, hashed and shown; a secret in one would travel. The checks rather refuse a
harmless value (it can be renamed or moved to the host's environment) than let a credential through.
"""

from __future__ import annotations

import math
import re
from collections import Counter

__all__ = ["is_placeholder", "looks_secret", "names_secret", "variable_of"]

_NAME = re.compile(r"(KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?)$", re.IGNORECASE)
_VALUE = re.compile(
    r"^(sk-|sk_live_|rk_live_|pk_live_|gh[pousr]_|github_pat_|glpat-|xox[abprs]-|AKIA|ASIA|AIza|hf_|gsk_|npm_|pypi-|"
    r"Bearer\s|Basic\s|eyJ[\w-]+\.[\w-]+\.)|-----BEGIN |://[^/\s:@]+:[^/\s@]+@"
)
_VARIABLE = re.compile(r"^\$(?:\{([A-Za-z_][A-Za-z0-9_]*)\}|([A-Za-z_][A-Za-z0-9_]*))$")
_RANDOM = re.compile(r"^[A-Za-z0-9_+/=.-]{32,}$")
_PLACEHOLDERS = {"", "-", "none", "unused", "dummy", "placeholder", "local", "empty", "no-key", "not-needed", "x"}


def names_secret(name: str) -> bool:
    """Whether a variable's name says that it holds a secret."""
    return _NAME.search(name) is not None


def looks_secret(value: str) -> bool:
    """Whether a value has the shape of a credential; a `$VARIABLE` reference has not."""
    if variable_of(value) is not None:
        return False
    return _VALUE.search(value) is not None or _is_random(value)


def _is_random(value: str) -> bool:
    """Long text without spaces in which digits, capitals and small letters are mixed evenly."""
    if not _RANDOM.match(value) or value.startswith(("/", ".")):
        return False
    kinds = (any(c.isdigit() for c in value), any(c.isupper() for c in value), any(c.islower() for c in value))
    entropy = -sum(n / len(value) * math.log2(n / len(value)) for n in Counter(value).values())
    return all(kinds) and entropy > 4.2


def variable_of(value: str) -> str | None:
    """The name in `$NAME` or `${NAME}`, None when the value is something else."""
    match = _VARIABLE.match(value)
    return (match[1] or match[2]) if match else None


def is_placeholder(value: str) -> bool:
    """Whether a key field obviously holds no key (`none`, `unused`, ...)."""
    return value.strip().lower() in _PLACEHOLDERS
