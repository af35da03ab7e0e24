"""Fuzz every door of both daemons of a shared cluster with raw bytes and mutated messages, for a bounded time.

    python -m tests.system.fuzz_doors [--seconds 600] [--seed 7]

Needs root.  A fuzzer sits at each door, as an ordinary user of the host or with a key that the door admits.  It mutates
ZMTP connections and all messages that gq knows (tests/wire/golden).  Exit status 1 when a daemon ended or logged an
error of its own, or when the cluster does not run a job afterwards; the logs are printed then.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import socket
import struct
import subprocess
import sys
import time
from contextlib import ExitStack, suppress

import zmq

MAX_SHORT = 255
GREETING = bytes.fromhex("ff00000000000000017f0301")
READY = (
    bytes.fromhex("041c05") + b"READY" + bytes.fromhex("0b") + b"Socket-Type" + bytes.fromhex("00000006") + b"DEALER"
)
PIECES = (b"", b"\x00", b"\xff", b"\xc1", b"\x91" * 200, b"\xdd\xff\xff\xff\xff", b"\xc6\xff\xff\xff\xff", b"\x06" * 9)
"""Of msgpack and ZMTP: lengths without content, depth, types that are none."""
MESSAGES_OF_LINK = 30


# ── the program on a host ─────────────────────────────────────────────────────────────────────────────────────


def mutated(chance: random.Random, data: bytes, other: bytes) -> bytes:
    """`data` with a few bytes changed, cut out, repeated, or taken from `other`."""
    for _ in range(chance.randint(1, 4)):
        at, behind = sorted((chance.randint(0, len(data)), chance.randint(0, len(data))))
        match chance.randrange(6):
            case 0 if at < len(data):
                data = data[:at] + bytes([data[at] ^ 1 << chance.randrange(8)]) + data[at + 1 :]
            case 1:
                data = data[:at]
            case 2:
                data = data[:at] + chance.choice(PIECES) + data[at:]
            case 3:
                data = data[:behind] + data[at:behind] + data[behind:]
            case 4:
                data = data[:at] + other[chance.randint(0, len(other)) :]
            case _:
                data = data[:at] + chance.randbytes(behind - at) + data[behind:]
    return data[:60_000]


def raw_connection(chance: random.Random, corpus: list[bytes], is_curve: bool) -> bytes:
    """What a ZMTP peer would say, mutated at any depth: the greeting, the handshake, or the frames."""
    mechanism = b"CURVE" if is_curve else chance.choice((b"NULL", b"NULL", b"NULL", b"PLAIN", b"GSSAPI"))
    greeting = GREETING + mechanism.ljust(20, b"\0") + bytes(32)
    hello = b"\x04\xc8\x05HELLO\x01\x00" + chance.randbytes(192)
    frames = b"".join(zmtp_frame(chance, one) for one in chance.choices(corpus, k=3))
    parts = [greeting, hello if is_curve else READY, frames]
    spoiled = chance.randrange(4)
    if spoiled == 3:
        return chance.randbytes(chance.randint(0, 300))
    parts[spoiled] = mutated(chance, parts[spoiled], frames)
    return b"".join(parts)


def zmtp_frame(chance: random.Random, body: bytes) -> bytes:
    more = chance.random() < 0.1
    if len(body) <= MAX_SHORT:
        return bytes([more, len(body)]) + body
    return struct.pack(">BQ", 2 | more, len(body)) + body


def speak_raw(task: dict[str, str], data: bytes) -> None:
    if task["path"]:
        plain = socket.socket(socket.AF_UNIX)
        plain.settimeout(1.0)
        plain.connect(task["path"])
    else:
        plain = socket.create_connection((task["address"], int(task["port"])), 1.0)
    with plain:
        cut = len(data) // 2
        for part in (data[:cut], data[cut:]):
            plain.sendall(part)
        with suppress(TimeoutError):
            plain.settimeout(0.05)
            plain.recv(4096)


def speak_messages(
    context: zmq.Context[zmq.Socket[bytes]], task: dict[str, str], chance: random.Random, corpus: list[bytes]
) -> int:
    dealer = context.socket(zmq.DEALER)
    dealer.setsockopt(zmq.LINGER, 200)
    dealer.setsockopt(zmq.SNDTIMEO, 200)
    if task["server"]:
        dealer.setsockopt(zmq.CURVE_SERVERKEY, task["server"].encode())
        dealer.setsockopt(zmq.CURVE_PUBLICKEY, task["public"].encode())
        dealer.setsockopt(zmq.CURVE_SECRETKEY, task["secret"].encode())
    dealer.connect(f"ipc://{task['path']}" if task["path"] else f"tcp://{task['address']}:{task['port']}")
    sent = 0
    with dealer, suppress(zmq.Again):
        for body in chance.choices(corpus, k=chance.randint(1, MESSAGES_OF_LINK)):
            frames = [mutated(chance, body, chance.choice(corpus)) if chance.random() < 0.9 else body]
            dealer.send_multipart(frames * (2 if chance.random() < 0.05 else 1))
            sent += 1
        with suppress(zmq.Again):
            while dealer.poll(20):
                dealer.recv_multipart(zmq.NOBLOCK)
    return sent


def fuzz(task: dict[str, str], corpus: list[bytes]) -> dict[str, int]:
    """Until the time is over; how many connections and messages were made, and how many connections were refused."""
    chance = random.Random(task["seed"])
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    until = time.monotonic() + float(task["seconds"])
    counts = {"connections": 0, "messages": 0, "refused": 0}
    while time.monotonic() < until:
        try:
            if chance.random() < 0.5:
                speak_raw(task, raw_connection(chance, corpus, bool(task["server"])))
            else:
                counts["messages"] += speak_messages(context, task, chance, corpus)
            counts["connections"] += 1
        except PermissionError:  # kept out for a minute
            counts["refused"] += 1
            time.sleep(0.5)
        except OSError:
            counts["refused"] += 1
            time.sleep(0.01)
    context.destroy(0)
    return counts


# ── the cluster ───────────────────────────────────────────────────────────────────────────────────────────────


def main() -> int:
    from gq.connection.curve import fresh_keys
    from gq.wire import client as wire
    from tests.clusters import new_mark
    from tests.integration.jobs import submit
    from tests.system.accounts import BOB
    from tests.system.hosts import CONTROLLER_PORT, STEP_PORT, network
    from tests.system.stage import ACCOUNTS, NAMES, PORT_OF_CLIENTS, set_stage
    from tests.wire.record import read_golden

    parser = argparse.ArgumentParser(prog="python -m tests.system.fuzz_doors")
    parser.add_argument("--seconds", type=float, default=600.0, help="of fuzzing, at all doors at once")
    parser.add_argument("--seed", type=int, default=7)
    asked = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    corpora: dict[str, list[str]] = {"client": [], "node": [], "step": []}
    for name, forms in read_golden().items():
        if (kind := name.partition(".")[0]) in corpora:
            corpora[kind] += forms
    with ExitStack() as stack:
        stage = set_stage(stack.enter_context(network(NAMES, new_mark(), ACCOUNTS)))
        stack.callback(stage.client.close)
        stack.callback(stage.reader.end)
        user_keys, node_keys = fresh_keys(), stage.node_keys("lab")
        stage.ask(stage.bob, wire.AddKey(public=user_keys.public.decode(), note="fuzz"))
        server = stage.server_key.decode()
        of_user = {"server": server, "public": user_keys.public.decode(), "secret": user_keys.secret.decode()}
        of_node = {"server": server, "public": node_keys.public.decode(), "secret": node_keys.secret.decode()}
        of_step = of_user | {"server": stage.root.path("/var/lib/gq/controller/keys/nodes/n1.pub").read_text().strip()}
        local = {"server": "", "address": "", "port": ""}
        ctl, n1 = stage.root.address, stage.host("n1").address
        doors = {
            "gqd.sock": ("ctl", "client", local | {"path": "/run/gq/gqd.sock"}),
            "port of nodes": ("lab", "node", of_node | {"path": "", "address": ctl, "port": str(CONTROLLER_PORT)}),
            "port of users": ("lab", "client", of_user | {"path": "", "address": ctl, "port": str(PORT_OF_CLIENTS)}),
            "relay": ("n1", "client", local | {"path": "/run/gq/gqd.sock"}),
            "socket of the host": ("n1", "step", local | {"path": "/run/gq/step-n1.sock"}),
            "step port": ("lab", "step", of_step | {"path": "", "address": n1, "port": str(STEP_PORT)}),
        }
        stage.end_speakers()
        fuzzers: dict[str, subprocess.Popen[str]] = {}
        for number, (name, (host, kind, task)) in enumerate(doors.items()):
            task |= {"seed": str(asked.seed * 100 + number), "seconds": str(asked.seconds)}
            fuzzers[name] = stage.host(host).user(BOB).start(sys.executable, __file__)
            pipe = fuzzers[name].stdin
            assert pipe is not None
            pipe.write(json.dumps([task, corpora[kind]]) + "\n")
            pipe.flush()
        for name, fuzzer in fuzzers.items():
            said, _ = fuzzer.communicate(timeout=asked.seconds + 120)
            print(f"{name:20} {said.strip()}", flush=True)
        ended = [daemon for host in stage.net.hosts.values() for daemon in host.daemons if daemon.has_ended()]
        print(f"seed {asked.seed}; daemons that ended: {[daemon.argv for daemon in ended] or 'none'}", flush=True)
        critical = [line for line in stage.net.logs().splitlines() if "CRITICAL" in line or "Traceback" in line]
        print(f"lines of logs that tell of an error of gq: {critical or 'none'}", flush=True)
        if ended or critical:
            print(stage.net.logs())
            return 1
        job = submit(stage.alice, "-w", "n1", wrap="gqrun hostname")
        print(f"a job afterwards: {stage.await_state(job, 'COMPLETED', 'FAILED').state}")
    return 0


if __name__ == "__main__":
    if len(sys.argv) > 1 or __package__:
        sys.exit(main())
    found, hexes = json.loads(sys.stdin.readline())
    print(json.dumps(fuzz(found, [bytes.fromhex(one) for one in hexes])))
