"""The step door of a node's own host, where the other one is on the network: tells whose attempts run here.

Owns one socket, on which the kernel says who asks.  No step is attached to and no file is read over it.
"""

from __future__ import annotations

from typing import Protocol

import zmq

from gq.errors import ProtocolError
from gq.wire import step as wire
from gq.wire.codec import MAX_MESSAGE_BYTES
from gqnode.daemon.sockets import Context, listen_ipc, peer_uid

ROOT_UID = 0


class CellsHandler(Protocol):
    """Who knows."""

    def cells(self, uid: int) -> tuple[wire.CellPlace, ...]:
        """Of the attempts of a user that run here, oldest first."""
        ...


def cells_for(handler: CellsHandler, wanted_uid: int, uid: int | None) -> wire.FromDoor:
    """What `uid` may know of the cells of `wanted_uid`; None: nobody said who asks."""
    if uid is None:
        return wire.StepRefused(code="not_local", message="cells are shown only over the socket of this host")
    if uid == ROOT_UID:
        return wire.Cells(cells=handler.cells(wanted_uid))
    if uid != wanted_uid:
        return wire.StepRefused(code="not_owner", message=f"the cells of uid {wanted_uid} are another user's")
    return wire.Cells(cells=tuple(wire.CellPlace(attempt_id=cell.attempt_id) for cell in handler.cells(uid)))


class HostListener:
    """Answers `FindCells`, and nothing else."""

    def __init__(self, context: Context, endpoint: str, handler: CellsHandler, may_be_shared: bool) -> None:
        self._handler = handler
        self.dropped = 0
        """Messages that are none, or not for this door."""
        self._socket = listen_ipc(context, endpoint, MAX_MESSAGE_BYTES, self._on_frame, is_for_all=may_be_shared)

    def close(self) -> None:
        self._socket.close(linger_s=0.2)

    def _on_frame(self, peer: bytes, frame: zmq.Frame) -> None:
        try:
            message = wire.TO_DOOR.decode(frame.buffer)
        except ProtocolError:
            self.dropped += 1
            return
        if not isinstance(message, wire.FindCells):
            self.dropped += 1
            return
        answer = cells_for(self._handler, message.uid, peer_uid(frame))
        self._socket.send(wire.FROM_DOOR.encode(answer), peer)
