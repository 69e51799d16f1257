"""The `nop` subject: does nothing. A task whose untouched state passes its tests is caught by it."""

from __future__ import annotations

from windtunnel.subjects.interface import Launch, LaunchContext
from windtunnel.subjects.plainest import PlainestSubject

__all__ = ["Nop"]


class Nop(PlainestSubject):
    """Starts the bundle's Node, which ends at once: the way in and out is the same as for a real agent."""

    name = "nop"

    def launch(self, context: LaunchContext) -> Launch:
        """No prompt, no files."""
        return Launch(protocol="exit", argv=(f"{context.bundle_in}/node", "-e", "0"))
