"""A sample of every message, made from its type: every field set, different fields to different values.

Because the samples follow the types, a new message and a new field are in the golden bytes as soon as they exist.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from typing import Any, get_args

import msgspec
import msgspec.inspect as inspect

from gq.model.explanation import Fact
from gq.model.ids import RequestId
from gq.wire import client, node, step
from gq.wire.codec import WIRE_VERSION, Codec
from gq.wire.explanation import FACTS

REQUEST_ID = RequestId(bytes(range(16)))
LOG_TICKET = step.seal(step.LogTicket(7, 2, "/home/ada/gq-7.out", 1000, 1.5), b"k" * 32)


def sample(kind: Any) -> Any:
    """One value of a type, with every field set."""
    return _value(inspect.type_info(kind), "sample")


def _value(kind: inspect.Type, name: str) -> Any:
    """`name`, the field's, makes the value: two swapped fields do not look alike."""
    number = sum(name.encode()) % 199 + 1
    match kind:
        case inspect.BoolType():
            return True
        case inspect.IntType():
            return number
        case inspect.FloatType():
            return number + 0.25
        case inspect.StrType():
            return name
        case inspect.RawType():
            return msgspec.Raw(msgspec.msgpack.encode(name))
        case inspect.BytesType():
            return name.encode() + b"\x00\xff"
        case inspect.EnumType(cls=cls):
            return list(cls)[-1]
        case inspect.VarTupleType(item_type=item):
            return (_value(item, name),)
        case inspect.TupleType(item_types=items):
            return tuple(_value(item, f"{name}{place}") for place, item in enumerate(items))
        case inspect.DictType(key_type=key, value_type=value):
            return {_value(key, f"{name}_key"): _value(value, f"{name}_value")}
        case inspect.UnionType(types=types):
            return _value(next(one for one in types if not isinstance(one, inspect.NoneType)), name)
        case inspect.StructType(cls=cls, fields=fields):
            return cls(**{field.name: _unlike_default(field) for field in fields})
        case _:
            raise AssertionError(f"`{name}` has a type that no message should have: {kind}")


def _unlike_default(field: inspect.Field) -> Any:
    """A value that is sent even where defaults are left out."""
    value = _value(field.type, field.name)
    return not field.default if isinstance(field.default, bool) else value


def members(union: Any) -> tuple[type[msgspec.Struct], ...]:
    """The message types of a union (or of one type alone)."""
    return get_args(union) or (union,)


def wire_messages() -> Iterator[tuple[str, Codec[Any], Any]]:
    """(name, codec, message) of everything that crosses a socket; the name is unique and stays."""
    for body in members(client.RequestBody):
        yield f"client.{body.__name__}", client.REQUESTS, client.Request(WIRE_VERSION, REQUEST_ID, sample(body))
    introduction = client.Introduction(WIRE_VERSION, REQUEST_ID, sample(client.Introduce))
    yield "client.Introduce", client.INTRODUCTIONS, introduction
    for body in members(client.ReplyBody):
        yield f"client.{body.__name__}", client.REPLIES, client.Reply(WIRE_VERSION, REQUEST_ID, sample(body))
    for kind in members(Fact):
        yield f"fact.{kind.__name__}", FACTS, sample(kind)
    for kind in members(node.NodeMessage):
        if kind is not node.Report:
            yield f"node.{kind.__name__}", node.NODE_MESSAGES, sample(kind)
    for body in members(node.ReportBody):
        report = node.Report(node="n1", incarnation="i", seq=3, body=sample(body))
        yield f"node.{body.__name__}", node.NODE_MESSAGES, report
    for kind in members(node.ControllerMessage):
        if kind is not node.Orders:
            yield f"node.{kind.__name__}", node.CONTROLLER_MESSAGES, sample(kind)
    for order in members(node.Order):
        orders = node.Orders(orders=(sample(order),), blobs={"digest": b"#!/bin/sh\n"})
        yield f"node.{order.__name__}", node.CONTROLLER_MESSAGES, orders
    for kind in members(step.ToDoor):
        yield f"step.{kind.__name__}", step.TO_DOOR, sample(kind)
    for kind in members(step.FromDoor):
        yield f"step.{kind.__name__}", step.FROM_DOOR, sample(kind)


def enum_types() -> tuple[type[enum.Enum], ...]:
    """Enumerations that cross the wire: their values may be added to, never changed."""
    from gq.model.state import JobState, Outcome, Reason

    return (JobState, Outcome, Reason)
