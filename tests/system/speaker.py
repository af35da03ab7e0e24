"""What an attacker runs on a host: says any bytes to any door, and tells what came back.

Run as a program (``python speaker.py``) it takes one JSON object a line and answers with one; it knows no message of
gq.  `Speaker` is the test's end of it.
"""

from __future__ import annotations

import contextlib
import json
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import zmq

Fact = dict[str, Any]
ANSWER_S = 60.0
CURVE, NULL, PLAIN = "CURVE", "NULL", "PLAIN"


# ── the program ───────────────────────────────────────────────────────────────────────────────────────────────


class _Program:
    def __init__(self) -> None:
        self._context = zmq.Context()
        self._dealers: dict[int, zmq.Socket[bytes]] = {}
        self._plain: dict[int, socket.socket] = {}
        self._kept: list[socket.socket] = []

    def dial(self, number: int, endpoint: str, options: Fact) -> None:
        dealer = self._context.socket(zmq.DEALER)
        dealer.setsockopt(zmq.LINGER, 0)
        dealer.setsockopt(zmq.SNDTIMEO, 1000)
        for name, value in options.items():
            dealer.set(getattr(zmq.SocketOption, name), value.encode() if isinstance(value, str) else value)
        dealer.connect(endpoint)
        self._dealers[number] = dealer

    def send(self, number: int, frames: list[str]) -> None:
        with contextlib.suppress(zmq.Again):  # the other end has hung up for good
            self._dealers[number].send_multipart([bytes.fromhex(frame) for frame in frames])

    def send_large(self, number: int, size: int) -> None:
        self.send(number, [(b"\x93" * size).hex()])

    def receive(self, number: int, within_s: float) -> list[str] | None:
        dealer = self._dealers[number]
        if not dealer.poll(int(within_s * 1000)):
            return None
        return [frame.hex() for frame in dealer.recv_multipart()]

    def hang_up(self, number: int) -> None:
        self._dealers.pop(number).close()

    def connect(self, number: int, address: str | list[object], source: str) -> None:
        """A plain connection; `address` is a path or (host, port)."""
        if isinstance(address, str):
            plain = socket.socket(socket.AF_UNIX)
            plain.connect(address)
        else:
            plain = socket.create_connection(_pair(address), source_address=(source, 0))
        self._plain[number] = plain

    def write(self, number: int, data: str) -> None:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._plain[number].sendall(bytes.fromhex(data))

    def stream(self, number: int, piece: str, times: int) -> int:
        """The same again and again, until the other side has hung up; how often."""
        data = bytes.fromhex(piece)
        for count in range(times):
            try:
                self._plain[number].sendall(data)
            except (BrokenPipeError, ConnectionResetError):
                return count
        return times

    def rush(self, path: str, opening: str, answer_bytes: int, data: str, times: int) -> None:
        """Again and again make a connection, wait for so many bytes of an answer, say all else at once and go."""
        for _ in range(times):
            with socket.socket(socket.AF_UNIX) as plain:
                plain.connect(path)
                plain.sendall(bytes.fromhex(opening))
                plain.recv(answer_bytes, socket.MSG_WAITALL)
                with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                    plain.sendall(bytes.fromhex(data))

    def read(self, number: int, within_s: float) -> str:
        """Everything that comes until nothing more does, or the other side has closed."""
        plain, got, until = self._plain[number], b"", time.monotonic() + within_s
        while (left := until - time.monotonic()) > 0:
            plain.settimeout(left)
            try:
                data = plain.recv(65536)
            except (TimeoutError, ConnectionResetError):
                break
            if not data:
                break
            got += data
        plain.settimeout(None)
        return got.hex()

    def half_open(self, address: list[object], count: int, source: str) -> int:
        """Connections on which nothing is ever said; how many stand."""
        for _ in range(count):
            plain = socket.socket()
            if source:
                plain.bind((source, 0))  # takes a port of its own, whatever it connects to
            plain.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                plain.connect(_pair(address))
            self._kept.append(plain)
        return sum(_has_peer(one) for one in self._kept)

    def half_open_local(self, path: str, count: int) -> int:
        for _ in range(count):
            plain = socket.socket(socket.AF_UNIX)
            plain.setblocking(False)
            self._kept.append(plain)
            with contextlib.suppress(BlockingIOError):
                plain.connect(path)
        return len(self._kept)

    def fall_silent_local(self, path: str, count: int, opening: str) -> int:
        """Connections on which only `opening` is said, until the kernel keeps this user out; how many were made."""
        for number in range(count):
            plain = socket.socket(socket.AF_UNIX)
            self._kept.append(plain)
            try:
                plain.connect(path)
                plain.sendall(bytes.fromhex(opening))
            except PermissionError:
                return number
            except OSError:
                continue
        return count

    def standing(self) -> int:
        """How many of its connections have not been hung up on."""
        return sum(_stands(plain) for plain in self._kept)

    def tap(self, address: list[object]) -> int:
        """A port that leads to `address`; what goes there is recorded."""
        listener = socket.create_server(("127.0.0.1", 0))
        self._tap = _Tap(listener, _pair(address))
        threading.Thread(target=self._tap.run, daemon=True).start()
        return int(listener.getsockname()[1])

    def recorded(self) -> str:
        return bytes(self._tap.recorded).hex()

    def spoil(self) -> None:
        """From now on a bit of each piece that goes there is another."""
        self._tap.is_spoiling = True

    def is_hung_up_on(self) -> bool:
        """Whether the other end of the tap has closed it."""
        return self._tap.is_hung_up_on

    def let_go(self) -> None:
        while self._kept:
            self._kept.pop().close()

    def query(self, path: str, words: str, values: list[object]) -> list[list[object]]:
        """Rows of a database of the host."""
        with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
            return [list(row) for row in database.execute(words, values)]


class _Tap:
    """One connection on its way to somewhere else."""

    def __init__(self, listener: socket.socket, target: tuple[str, int]) -> None:
        self._listener = listener
        self._target = target
        self.recorded = bytearray()
        self.is_spoiling = False
        self.is_hung_up_on = False

    def run(self) -> None:
        near, _ = self._listener.accept()
        far = socket.create_connection(self._target)
        threading.Thread(target=self._pass_on, args=(far, near, False), daemon=True).start()
        self._pass_on(near, far, True)

    def _pass_on(self, source: socket.socket, sink: socket.socket, is_recorded: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if is_recorded:
                    self.recorded += data
                    data = data[:-1] + bytes([data[-1] ^ self.is_spoiling])
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)
        self.is_hung_up_on |= not is_recorded


def _pair(address: list[object]) -> tuple[str, int]:
    return str(address[0]), int(str(address[1]))


def _stands(plain: socket.socket) -> bool:
    """Whether the other end is still there, whatever it has said."""
    plain.setblocking(False)
    try:
        while data := plain.recv(65_536):
            assert data
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def _has_peer(plain: socket.socket) -> bool:
    try:
        plain.getpeername()
    except OSError:
        return False
    return True


def main() -> None:
    program = _Program()
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            answer: Fact = {"is": getattr(program, asked.pop("do"))(**asked)}
        except OSError as error:
            answer = {"errno": error.errno, "said": str(error)}
        print(json.dumps(answer), flush=True)


# ── the test's end ────────────────────────────────────────────────────────────────────────────────────────────


class Keys(NamedTuple):
    """Of a CURVE client, all Z85."""

    public: bytes
    secret: bytes
    server: bytes


class CanStart(Protocol):
    """A host (then root), or a user of one."""

    def start(self, *argv: str, **environ: str) -> subprocess.Popen[str]: ...


class Speaker:
    """Runs as the user, on the host, that it is given."""

    def __init__(self, who: CanStart) -> None:
        self._process = who.start(sys.executable, __file__)
        self._next = 0

    def dial(self, endpoint: str, keys: Keys | None = None, **options: str | int) -> Line:
        """A DEALER; `options` are socket options besides those of the keys."""
        chosen: Fact = dict(options)
        if keys is not None:
            named = {"CURVE_PUBLICKEY": keys.public, "CURVE_SECRETKEY": keys.secret, "CURVE_SERVERKEY": keys.server}
            chosen |= {name: value.decode() for name, value in named.items()}
        number = self._number()
        self.ask("dial", number=number, endpoint=endpoint, options=chosen)
        return Line(self, number)

    def connect(self, address: str | tuple[str, int], source: str = "") -> PlainLine:
        number = self._number()
        self.ask("connect", number=number, address=address, source=source)
        return PlainLine(self, number)

    def half_open(self, address: tuple[str, int], count: int, source: str = "") -> int:
        return int(self.ask("half_open", address=address, count=count, source=source))

    def half_open_local(self, path: str, count: int) -> int:
        return int(self.ask("half_open_local", path=path, count=count))

    def fall_silent_local(self, path: str, count: int, opening: bytes) -> int:
        return int(self.ask("fall_silent_local", path=path, count=count, opening=opening.hex()))

    def standing(self) -> int:
        return int(self.ask("standing"))

    def rush(self, path: str, opening: bytes, answer_bytes: int, data: bytes, times: int) -> None:
        self.ask("rush", path=path, opening=opening.hex(), answer_bytes=answer_bytes, data=data.hex(), times=times)

    def tap(self, address: tuple[str, int]) -> int:
        """The port on this host that leads there."""
        return int(self.ask("tap", address=address))

    def recorded(self) -> bytes:
        """What went over the tap."""
        return bytes.fromhex(self.ask("recorded"))

    def spoil(self) -> None:
        self.ask("spoil")

    def is_hung_up_on(self) -> bool:
        return bool(self.ask("is_hung_up_on"))

    def query(self, path: str, words: str, *values: object) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in self.ask("query", path=path, words=words, values=values)]

    def ask(self, do: str, **arguments: object) -> Any:
        """Its answer; `OSError` where the machine said no."""
        assert self._process.stdin is not None and self._process.stdout is not None
        print(json.dumps({"do": do, **arguments}), file=self._process.stdin, flush=True)
        line = self._process.stdout.readline()
        assert line.startswith("{"), line + self._process.communicate(timeout=ANSWER_S)[0]
        answer = json.loads(line)
        if "errno" in answer:
            raise OSError(answer["errno"], answer["said"])
        return answer["is"]

    def end(self) -> None:
        self._process.communicate(timeout=ANSWER_S)

    def _number(self) -> int:
        self._next += 1
        return self._next


class Line(NamedTuple):
    """A ZeroMQ connection of a speaker."""

    speaker: Speaker
    number: int

    def send(self, *frames: bytes) -> None:
        self.speaker.ask("send", number=self.number, frames=[frame.hex() for frame in frames])

    def send_large(self, size: int) -> None:
        self.speaker.ask("send_large", number=self.number, size=size)

    def receive(self, within_s: float = 10.0) -> bytes | None:
        """The last frame of the next message; None: there was none."""
        frames: Sequence[str] | None = self.speaker.ask("receive", number=self.number, within_s=within_s)
        return bytes.fromhex(frames[-1]) if frames else None

    def heard(self, within_s: float = 10.0) -> Iterator[bytes]:
        """Messages as they come; ends when none comes in time."""
        while (message := self.receive(within_s)) is not None:
            yield message

    def hang_up(self) -> None:
        self.speaker.ask("hang_up", number=self.number)


class PlainLine(NamedTuple):
    """A bare stream."""

    speaker: Speaker
    number: int

    def write(self, data: bytes) -> None:
        self.speaker.ask("write", number=self.number, data=data.hex())

    def stream(self, piece: bytes, times: int) -> int:
        """How often it could be written, before the other side hung up."""
        return int(self.speaker.ask("stream", number=self.number, piece=piece.hex(), times=times))

    def read(self, within_s: float = 1.0) -> bytes:
        return bytes.fromhex(self.speaker.ask("read", number=self.number, within_s=within_s))


if __name__ == "__main__":
    main()
