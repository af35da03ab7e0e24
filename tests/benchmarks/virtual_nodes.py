"""Nodes that only talk: one process that is a thousand nodes to a real controller, and obeys every order at once.

Run as ``python -m tests.benchmarks.virtual_nodes ENDPOINT COUNT GPUS CPUS``; prints a line when all are in.  What they
run never ends.
"""

from __future__ import annotations

import sys
import time

import zmq

from gq.host.fd_limit import raise_descriptor_limit
from gq.model.node import Inventory
from gq.wire import node as wire
from gq.wire.codec import WIRE_VERSION
from tests.builders import inventory
from tests.hosts import obedient_reports

HEARTBEAT_S = 10.0
_INCARNATION = "1"


class VirtualNode:
    def __init__(self, socket: zmq.Socket[bytes], name: str, has: Inventory) -> None:
        self.name = name
        self._socket = socket
        self._has = has
        self._seq = 0
        self.is_in = False

    def say_hello(self) -> None:
        self._say(
            wire.Hello(
                node=self.name,
                version=WIRE_VERSION,
                incarnation=_INCARNATION,
                boot_id="boot",
                address="127.0.0.1",
                inventory=self._has,
                step_endpoint=f"ipc:///run/no-such-{self.name}.sock",
                ticket_key=b"k" * 32,
                last_seq=self._seq,
            )
        )

    def beat(self) -> None:
        self._say(wire.Heartbeat(node=self.name, incarnation=_INCARNATION, at=time.time()))

    def hear(self) -> None:
        match wire.CONTROLLER_MESSAGES.decode(self._socket.recv()):
            case wire.Welcome():
                self.is_in = True
            case wire.WhoIsThere():
                self.say_hello()
            case wire.Orders(orders=orders):
                for order in orders:
                    self._obey(order)
            case _:
                pass

    def _obey(self, order: wire.Order) -> None:
        for body in obedient_reports(order, time.time()):
            self._seq += 1
            self._say(wire.Report(node=self.name, incarnation=_INCARNATION, seq=self._seq, body=body))

    def _say(self, message: wire.NodeMessage) -> None:
        self._socket.send(wire.NODE_MESSAGES.encode(message))


def serve(endpoint: str, count: int, has: Inventory) -> None:
    """Until it is killed."""
    raise_descriptor_limit()
    context = zmq.Context()
    context.set(zmq.MAX_SOCKETS, count + 16)
    poller = zmq.Poller()
    nodes = {}
    for number in range(count):
        socket = context.socket(zmq.DEALER)
        socket.linger = 0
        socket.connect(endpoint)
        poller.register(socket, zmq.POLLIN)
        nodes[socket] = VirtualNode(socket, f"v{number}", has)
        nodes[socket].say_hello()
    has_told, beats_at = False, time.monotonic() + HEARTBEAT_S
    while True:
        for socket, _ in poller.poll(100):
            nodes[socket].hear()
        if not has_told and all(node.is_in for node in nodes.values()):
            has_told = True
            print("in", flush=True)
        if time.monotonic() >= beats_at:
            beats_at += HEARTBEAT_S
            for node in nodes.values():
                node.beat()


if __name__ == "__main__":
    serve(sys.argv[1], int(sys.argv[2]), inventory(cpus=int(sys.argv[4]), gpu_count=int(sys.argv[3])))
