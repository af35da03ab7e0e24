"""Train a small neural network on the digits, data-parallel over all tasks of a `gqrun`, with only TCP.

Usage: ``gqrun train.py DIGITS_NPZ``.  Every task takes its share of the training images (`GQ_PROCID` of `GQ_NTASKS`).
After each batch the gradients of all tasks are averaged: the tasks connect to `MASTER_ADDR`:`MASTER_PORT`, where rank 0
listens.  All tasks start from the same weights and apply the same averages, so the weights stay equal without being
sent.  Rank 0 prints the accuracy.
"""

from __future__ import annotations

import os
import socket
import sys
import time

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

HIDDEN = 48
EPOCHS = 40
BATCH = 256  # over all tasks together
RATE = 0.5
MOMENTUM = 0.9
SEED = 11


class Gang:
    """All tasks of the step; averages an array over them, in a star around rank 0."""

    def __init__(self, rank: int, size: int, address: str, port: int) -> None:
        self.rank, self.size = rank, size
        self._links = self._gather(address, port) if rank == 0 else [self._join(address, port)]

    def _gather(self, address: str, port: int) -> list[socket.socket]:
        links: list[socket.socket] = []
        with socket.create_server((address, port), backlog=self.size) as server:
            server.settimeout(60)
            while len(links) < self.size - 1:
                link, _ = server.accept()
                link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                links.append(link)
        return links

    def _join(self, address: str, port: int) -> socket.socket:
        deadline = time.monotonic() + 60
        while True:
            try:
                link = socket.create_connection((address, port), timeout=60)
            except ConnectionRefusedError:  # rank 0 is not up yet
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)
            else:
                link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                return link

    def mean(self, values: Array) -> Array:
        """The average of `values` over all tasks."""
        if self.rank:
            self._links[0].sendall(values.tobytes())
            return _receive(self._links[0], values.size)
        total = values + sum(_receive(link, values.size) for link in self._links)
        mean: Array = total / self.size
        for link in self._links:
            link.sendall(mean.tobytes())
        return mean


def _receive(link: socket.socket, count: int) -> Array:
    buffer = bytearray(8 * count)
    view = memoryview(buffer)
    while view:
        got = link.recv_into(view)
        if not got:
            raise ConnectionError("a task of the gang is gone")
        view = view[got:]
    return np.frombuffer(buffer)


class Network:
    """64 pixels, one hidden layer, 10 digits; all weights in one vector, so that they are sent together."""

    def __init__(self, pixels: int, digits: int) -> None:
        random = np.random.default_rng(SEED)
        shapes = [(pixels, HIDDEN), (HIDDEN,), (HIDDEN, digits), (digits,)]
        parts = [random.normal(0, 1 / np.sqrt(shape[0]), shape) * (len(shape) > 1) for shape in shapes]
        self.weights: Array = np.concatenate([part.ravel() for part in parts])
        ends = np.cumsum([part.size for part in parts])[:-1]
        self._views = [part.reshape(shape) for part, shape in zip(np.split(self.weights, ends), shapes, strict=True)]

    def hidden(self, images: Array) -> Array:
        first, bias, _, _ = self._views
        return np.maximum(images @ first + bias, 0.0)

    def gradient(self, images: Array, digits: NDArray[np.int64]) -> Array:
        """Gradient of the mean cross-entropy, as one vector."""
        _, _, second, bias = self._views
        hidden = self.hidden(images)
        scores = hidden @ second + bias
        chances = np.exp(scores - scores.max(axis=1, keepdims=True))
        chances /= chances.sum(axis=1, keepdims=True)
        chances[np.arange(len(digits)), digits] -= 1.0
        chances /= len(digits)
        back = (chances @ second.T) * (hidden > 0)
        parts = [images.T @ back, back.sum(axis=0), hidden.T @ chances, chances.sum(axis=0)]
        return np.concatenate([part.ravel() for part in parts])

    def accuracy(self, images: Array, digits: NDArray[np.int64]) -> float:
        _, _, second, bias = self._views
        return float(np.mean((self.hidden(images) @ second + bias).argmax(axis=1) == digits))


def main(path: str) -> None:
    rank, size = int(os.environ["GQ_PROCID"]), int(os.environ["GQ_NTASKS"])
    gang = Gang(rank, size, os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
    print(f"on node {os.environ['GQ_NODEID']} with GPU {os.environ['CUDA_VISIBLE_DEVICES']}", flush=True)
    if rank == 0:
        meeting = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
        print(f"{size} tasks on the nodes {os.environ['GQ_NODE_ADDRS']} meet at {meeting}", flush=True)
    data = np.load(path)
    share = len(data["train_images"]) // size  # equal shares: every task makes the same number of steps
    images, digits = data["train_images"][rank::size][:share], data["train_digits"][rank::size][:share]
    network = Network(images.shape[1], 10)
    speed = np.zeros_like(network.weights)
    random = np.random.default_rng(SEED + rank)
    batch = max(1, BATCH // size)
    for epoch in range(1, EPOCHS + 1):
        order = random.permutation(share)
        for start in range(0, share - batch + 1, batch):
            chosen = order[start : start + batch]
            speed = MOMENTUM * speed - RATE * gang.mean(network.gradient(images[chosen], digits[chosen]))
            network.weights += speed
        if rank == 0 and epoch % 10 == 0:
            print(f"epoch {epoch:2d}: accuracy {network.accuracy(images, digits):.3f} on its own share", flush=True)
    if rank == 0:
        accuracy = network.accuracy(data["test_images"], data["test_digits"])
        print(f"test accuracy {accuracy:.3f} with {size} tasks", flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
