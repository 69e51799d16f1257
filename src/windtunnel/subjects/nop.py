"""The `nop` subject: does nothing. A task whose untouched state passes its tests is caught by it."""

from __future__ import annotations

from pathlib import Path

from windtunnel.subjects.bundle import bundle_for
from windtunnel.subjects.interface import Account, Launch, LaunchContext

__all__ = ["Nop"]


class Nop:
    """Starts the bundle's Node, which ends at once: the way in and out is the same as for a real agent."""

    name = "nop"
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

    def launch(self, context: LaunchContext) -> Launch:
        """No prompt, no files."""
        return Launch(protocol="exit", argv=(f"{context.bundle_in}/node", "-e", "0"))

    def account(self, box: Path) -> Account:
        """It keeps none."""
        return Account()
