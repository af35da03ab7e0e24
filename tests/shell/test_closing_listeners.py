"""Closing a tcp door while its peers send, do not read, and then go: libzmq must not abort the process."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import zmq

from gq.connection.curve import fresh_keys
from gq.connection.loop_socket import router
from gqd.shell.listeners import auth
from gqnode.daemon import sockets

ROOT = Path(__file__).parents[2]

PEERS = """
import sys, zmq
context = zmq.Context()
peers = [context.socket(zmq.DEALER) for _ in range(4)]
for peer in peers:
    peer.curve_publickey, peer.curve_secretkey = zmq.curve_keypair()
    peer.curve_serverkey = sys.argv[2].encode()
    peer.rcvhwm = 1
    peer.connect(sys.argv[1])
while True:
    for peer in peers:
        try:
            peer.send(bytes(100), zmq.NOBLOCK)
        except zmq.Again:
            pass
"""
"""Four links that send without end and read one message each."""

CLOSE_DOOR = """
import subprocess, sys, time, zmq
from gq.connection.curve import fresh_keys
from gq.connection.loop_socket import router

class HurriedSocket(zmq.Socket):
    def setsockopt(self, option, value):
        super().setsockopt(option, 5 if option == zmq.HEARTBEAT_IVL and value else value)

class Context(zmq.Context):
    _socket_class = HurriedSocket

daemon, peers_program = sys.argv[1:]
keys = fresh_keys()
context = Context()
door = router(context, 1 << 20)
if daemon == "gqd":
    from gqd.shell.listeners.auth import guard
    guard(door, keys, b"clients")
else:
    from gqnode.daemon.sockets import serve_curve
    serve_curve(door, keys)
port = door.bind_to_random_port("tcp://127.0.0.1")
peers = subprocess.Popen([sys.executable, "-c", peers_program, f"tcp://127.0.0.1:{port}", keys.public.decode()])
heard = set()
while len(heard) < 4:
    heard.add(door.recv_multipart()[0])
for peer in heard:
    for _ in range(32):  # 8 MiB, more than the kernel takes
        door.send_multipart([peer, bytes(1 << 18)])
door.close(linger=500)
time.sleep(0.05)  # what the peers send now arrives at a socket that is being closed
peers.kill()
peers.wait()
context.term()
print("closed")
"""
"""A heartbeat of libzmq's, if the door has one, comes every 5 ms here, so that one falls due while the door closes."""


@pytest.mark.parametrize("daemon", ["gqd", "gqnode"])
def test_closing_a_door_whose_peers_go_does_not_end_the_process(daemon: str) -> None:
    argv = [sys.executable, "-c", CLOSE_DOOR, daemon, PEERS]
    ended = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)

    assert ended.returncode != -signal.SIGABRT, ended.stderr
    assert (ended.returncode, ended.stdout) == (0, "closed\n"), ended.stderr


def test_no_socket_of_gq_has_a_heartbeat_of_libzmq() -> None:
    """Also the sockets of the commands and the link of a node, which are closed while their peer sends."""
    uses = re.compile(r"\bzmq\.HEARTBEAT_IVL|\.heartbeat_ivl\b")
    found = [
        str(path.relative_to(ROOT))
        for package in ("gq", "gqd", "gqnode")
        for path in sorted((ROOT / package).rglob("*.py"))
        if uses.search(path.read_text())
    ]

    assert found == []


def controller_door(context: zmq.Context[zmq.Socket[bytes]]) -> tuple[zmq.Socket[bytes], bytes]:
    keys, listener = fresh_keys(), router(context, 1 << 20)
    auth.guard(listener, keys, auth.CLIENT_DOMAIN)
    return listener, keys.public


def step_door(context: zmq.Context[zmq.Socket[bytes]]) -> tuple[zmq.Socket[bytes], bytes]:
    keys, listener = fresh_keys(), router(context, 1 << 20)
    sockets.serve_curve(listener, keys)
    return listener, keys.public


@pytest.mark.parametrize(
    ("make_door", "lost_after_s"), [(controller_door, auth.LOST_AFTER_S), (step_door, sockets.LOST_AFTER_S)]
)
def test_the_kernel_ends_the_link_of_a_host_that_is_lost(
    make_door: Callable[[zmq.Context[zmq.Socket[bytes]]], tuple[zmq.Socket[bytes], bytes]], lost_after_s: int
) -> None:
    with zmq.Context() as context:
        listener, public = make_door(context)
        with listener, context.socket(zmq.DEALER) as peer:
            peer.linger = 0
            peer.curve_publickey, peer.curve_secretkey = zmq.curve_keypair()
            peer.curve_serverkey = public
            peer.connect(f"tcp://127.0.0.1:{listener.bind_to_random_port('tcp://127.0.0.1')}")
            peer.send(b"hello")
            assert listener.poll(20_000)
            frame = listener.recv_multipart(copy=False)[-1]
            accepted = socket.socket(fileno=int(frame.get(zmq.SRCFD)))
            try:
                assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
                assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == lost_after_s * 1000
                idle_s = accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE)
                interval_s = accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL)
                assert idle_s + 4 * interval_s <= lost_after_s + 1
            finally:
                accepted.detach()
