"""The credentials of a run, in the gateway process only: read from its environment, searched for, replaced in text."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping
from urllib.parse import quote, quote_plus

from windtunnel.gateway.interface import Upstream

__all__ = ["SHORTEST", "Secrets", "forms_of"]

SHORTEST = 8  # a shorter value occurs by chance: it can neither be searched for nor replaced in text


class Secrets:
    """Credential values by route name. Never shown: `repr` tells the names only."""

    def __init__(self, upstreams: Iterable[Upstream], environment: Mapping[str, str]) -> None:
        names = {upstream.route.name: upstream.route.credential for upstream in upstreams}
        self._needed = {route for route, name in names.items() if name}
        found = {route: environment.get(name, "").strip() for route, name in names.items() if name}
        self._values = {route: value for route, value in found.items() if value}

    def __repr__(self) -> str:
        return f"Secrets({sorted(self._values)})"

    def value(self, route: str) -> str | None:
        """The credential of a route; None when it needs none or has none."""
        return self._values.get(route)

    def missing(self, route: str) -> bool:
        """Whether a route needs a credential that is not there."""
        return route in self._needed and route not in self._values

    def items(self) -> list[tuple[str, str]]:
        """Route and value, for the search."""
        return sorted(self._values.items())

    def redact(self, text: str) -> str:
        """The text with every credential in it replaced, in its plain and its JSON form."""
        for _, value in self.items():
            if len(value) >= SHORTEST:
                for form in (value, json.dumps(value)[1:-1]):
                    text = text.replace(form, "[redacted]")
        return text

    def redact_bytes(self, data: bytes) -> bytes:
        """The same for a body on its way to a subject; bytes that are not UTF-8 survive."""
        return self.redact(data.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")


def forms_of(value: str) -> dict[str, frozenset[bytes]]:
    """How a value may be written in a file: plain, base64 (at any of its three alignments), url, json."""
    plain = value.encode()
    quoted = {quote(value), quote(value, safe=""), quote_plus(value)}
    lower = {_lower_escapes(text) for text in quoted}
    forms = {
        "plain": frozenset({plain}),
        "base64": frozenset(_base64_forms(plain)),
        "url": frozenset(text.encode() for text in quoted | lower),
        "json": frozenset({json.dumps(value)[1:-1].encode(), json.dumps(value).replace("/", "\\/")[1:-1].encode()}),
    }
    return {name: needles if name == "plain" else needles - {plain} for name, needles in forms.items()}


def _base64_forms(plain: bytes) -> Iterable[bytes]:
    """The part of the encoded text that does not depend on what stands before and after the value."""
    for shift in range(3):
        encoded = base64.b64encode(b"\0" * shift + plain)
        start = (0, 2, 3)[shift]  # characters that share bits with what stands before
        tail = (shift + len(plain)) % 3
        end = len(encoded) - (0, 3, 2)[tail]  # padding, and the character that shares bits with what follows
        core = encoded[start:end]
        yield core
        yield core.translate(bytes.maketrans(b"+/", b"-_"))


def _lower_escapes(text: str) -> str:
    parts = text.split("%")
    return "%".join([parts[0], *(part[:2].lower() + part[2:] for part in parts[1:])])
