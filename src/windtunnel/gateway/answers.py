"""Answers of the gateway's own, in the dialect's error shape, so that clients show them as a provider's refusal."""

from __future__ import annotations

from aiohttp import web

from windtunnel.domain.digest import to_json

__all__ = ["refusal"]


def refusal(status: int, code: str, message: str) -> web.Response:
    """`{"error": {message, type, code}}`, the OpenAI form. 4xx other than 429 is not tried again by clients."""
    error = {"message": f"windtunnel gateway: {message}", "type": "windtunnel_gateway", "code": code}
    return web.Response(status=status, body=to_json({"error": error}), content_type="application/json")
