"""Real servers on loopback that somebody is told by: HTTP and SMTP."""

from __future__ import annotations

import http.server
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import msgspec


class Heard(NamedTuple):
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def said(self) -> dict[str, Any]:
        told: dict[str, Any] = msgspec.json.decode(self.body)
        return told


class HttpListener:
    """Answers with `statuses` one after the other, then with 200; keeps what it heard."""

    def __init__(self, statuses: tuple[int, ...] = (), location: str = "", answer: bytes = b"ok") -> None:
        self.heard: list[Heard] = []
        self._statuses = list(statuses)
        listener = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                listener.heard.append(Heard(self.path, dict(self.headers.items()), body))
                self.send_response(listener._statuses.pop(0) if listener._statuses else 200)
                if location:
                    self.send_header("Location", location)
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            do_GET = do_POST

            def log_message(self, format: str, *args: object) -> None:
                """Nothing on the terminal of the tests."""

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True

    @property
    def authority(self) -> str:
        return f"127.0.0.1:{self.server.server_port}"

    @property
    def url(self) -> str:
        return f"http://{self.authority}/hook?secret=s3"


@contextmanager
def serving(server: socketserver.BaseServer) -> Iterator[None]:
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def listening(*statuses: int, location: str = "", answer: bytes = b"ok") -> Iterator[HttpListener]:
    listener = HttpListener(statuses, location, answer)
    with serving(listener.server):
        yield listener


class SmtpListener:
    """Takes every mail, and keeps what was said."""

    def __init__(self) -> None:
        self.said: list[str] = []
        listener = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                self.wfile.write(b"220 listener\r\n")
                in_data = False
                for raw in self.rfile:
                    line = raw.decode().rstrip("\r\n")
                    listener.said.append(line)
                    if in_data:
                        in_data = line != "."
                        answer = b"" if in_data else b"250 taken\r\n"
                    else:
                        in_data = line.upper() == "DATA"
                        answer = (
                            b"354 go on\r\n" if in_data else b"221 bye\r\n" if line.upper() == "QUIT" else b"250 ok\r\n"
                        )
                    self.wfile.write(answer)
                    if answer.startswith(b"221"):
                        return

        self.server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True

    @property
    def place(self) -> str:
        return f"smtp://127.0.0.1:{self.server.server_address[1]}"
