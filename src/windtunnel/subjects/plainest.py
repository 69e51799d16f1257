"""What a subject is when nothing about it is special: the base bundle, no file of a config changed, no account kept."""

from __future__ import annotations

from pathlib import Path

from windtunnel.subjects.bundle import bundle_for
from windtunnel.subjects.interface import Account

__all__ = ["PlainestSubject"]


class PlainestSubject:
    """Base of the subjects that come with windtunnel; each says what differs."""

    name: str
    version = "1"
    calls_models = False

    def refuse(self, inputs: Path, leaf: Path | None) -> list[str]:
        """Nothing: a config's files have no meaning here and no effect."""
        return []

    def overlay_description(self, inputs: Path, leaf: Path | None, *, model: str, route: str) -> list[str]:
        """Nothing: the gateway is given in the environment."""
        return []

    def bundle(self) -> Path:
        """The base bundle, built on first use."""
        return bundle_for(self.name, self.version).path

    def account(self, box: Path) -> Account:
        """It keeps none that we could know of."""
        return Account()
