"""The local listener of a host whose step listener is on the network: tells which attempts of a user run here.

It owns one socket, on which the kernel authenticates the caller.  It attaches no step and reads no file.
"""

from __future__ import annotations

from typing import Protocol

import zmq

from gq.connection.loop_socket import Context
from gq.errors import ProtocolError
from gq.wire import step as wire
from gq.wire.codec import MAX_MESSAGE_BYTES
from gqnode.daemon.sockets import listen_ipc, peer_uid

ROOT_UID = 0


class CellsHandler(Protocol):
    """Provides the cells of this node's attempts."""

    def cells(self, uid: int) -> tuple[wire.CellPlace, ...]:
        """Return the cells of the user's attempts that run here, oldest first."""
        ...


def cells_for(handler: CellsHandler, wanted_uid: int, uid: int | None) -> wire.FromDoor:
    """Return what `uid` may know of the cells of `wanted_uid`; None: the caller is not authenticated."""
    if uid is None:
        return wire.StepRefused(code="not_local", message="cells are shown only on the socket of this host")
    if uid == ROOT_UID:
        return wire.Cells(cells=handler.cells(wanted_uid))
    if uid != wanted_uid:
        return wire.StepRefused(code="not_owner", message=f"the cells of uid {wanted_uid} are another user's")
    return wire.Cells(cells=tuple(wire.CellPlace(attempt_id=cell.attempt_id) for cell in handler.cells(uid)))


class HostListener:
    """Answers `FindCells` and no other message."""

    def __init__(self, context: Context, endpoint: str, handler: CellsHandler, may_be_shared: bool) -> None:
        self._handler = handler
        self.dropped = 0
        """Count of dropped messages: malformed, or of another kind."""
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
