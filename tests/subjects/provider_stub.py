"""A scripted chat completions provider on a TCP port or a unix socket: one reply for each request, in order."""

from __future__ import annotations

import json
import socketserver
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

USAGE = {
    "prompt_tokens": 1000,
    "completion_tokens": 50,
    "total_tokens": 1050,
    "prompt_tokens_details": {"cached_tokens": 400},
    "completion_tokens_details": {"reasoning_tokens": 20},
}


@dataclass(frozen=True)
class Reply:
    """`torn`: the connection ends after the first chunk. `body`: an error body instead of a stream."""

    text: str = ""
    calls: tuple[tuple[str, dict[str, Any]], ...] = ()
    status: int = 200
    body: Any = None
    torn: bool = False
    finish: str | None = None
    usage: dict[str, Any] | None = field(default_factory=lambda: dict(USAGE))

    def chunks(self, model: str) -> list[dict[str, Any]]:
        head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": f"{model}-served"}
        deltas: list[dict[str, Any]] = [{"role": "assistant", "content": self.text[:1]}, {"content": self.text[1:]}]
        for index, (name, arguments) in enumerate(self.calls):
            text = json.dumps(arguments)
            call = {
                "index": index,
                "id": f"call_{index}",
                "type": "function",
                "function": {"name": name, "arguments": ""},
            }
            deltas.append({"tool_calls": [call]})
            parts = (text[: len(text) // 2], text[len(text) // 2 :])
            deltas += [{"tool_calls": [{"index": index, "function": {"arguments": part}}]} for part in parts]
        made = [head | {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
        finish = self.finish or ("tool_calls" if self.calls else "stop")
        made.append(head | {"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})
        return [*made, head | {"choices": [], "usage": self.usage}] if self.usage else made


@dataclass
class Provider:
    """`requests`: (path, headers in lower case, body) of every call."""

    replies: list[Reply]
    base_url: str = ""
    requests: list[tuple[str, dict[str, str], dict[str, Any]]] = field(default_factory=list)

    @property
    def bodies(self) -> list[dict[str, Any]]:
        return [body for _, _, body in self.requests]


class _Unix(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True

    def get_request(self) -> Any:
        request, _ = super().get_request()
        return request, ("unix", 0)


class _Tcp(ThreadingHTTPServer):
    daemon_threads = True


def _handler(provider: Provider) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            headers = {name.lower(): value for name, value in self.headers.items()}
            provider.requests.append((self.path, headers, body))
            reply = provider.replies.pop(0) if provider.replies else Reply(status=500, body="the script is over")
            self.close_connection = True
            self.send_response(reply.status)
            self.send_header("connection", "close")
            if reply.body is not None:
                text = json.dumps(reply.body).encode()
                self.send_header("content-length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)
                return
            self.send_header("content-type", "text/event-stream")
            if reply.torn:
                self.send_header("content-length", "1000000")
            self.end_headers()
            for chunk in reply.chunks(body["model"])[: 1 if reply.torn else None]:
                self.wfile.write(b"data: " + json.dumps(chunk).encode() + b"\n\n")
            if not reply.torn:
                self.wfile.write(b"data: [DONE]\n\n")

        def log_message(self, format: str, *args: Any) -> None:
            pass

    return Handler


@contextmanager
def provider(replies: Sequence[Reply], *, unix: Path | None = None) -> Iterator[Provider]:
    """Serve until the block ends."""
    made = Provider(list(replies))
    server = _Unix(str(unix), _handler(made)) if unix else _Tcp(("127.0.0.1", 0), _handler(made))
    if unix is None:
        made.base_url = f"http://127.0.0.1:{server.socket.getsockname()[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield made
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
