"""Constraints on the nodes of a job (``--constraint``, ``--prefer``): features and comparisons of attributes.  Pure.

    constraint := all ('|' all)*             any of them
    all        := one (('&' | ',') one)*     all of them
    one        := '!' one | '(' constraint ')' ['*' N] | '[' … ']' | NAME [op VALUE] ['*' N]
    op         := '=' | '==' | '!=' | '<' | '<=' | '>' | '>='

``ib*2``: at least two of the nodes have ``ib``; ``[rack1*2&rack2*4]`` counts each; ``[a|b]``: all nodes are of one
kind.  These apply to all nodes of the job together, so they cannot be inside parentheses, ``!`` or ``|``.

Values are compared as versions (12.10 is more than 12.4), values with a unit (40G) as amounts, where a number without a
unit is in MiB.  An attribute may have several values, separated by commas: ``=`` needs one equal value, ``<`` and ``>``
need all values to compare so.  `parse_constraint` raises ``ValueError`` with a sentence that names the position.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import dataclass
from functools import lru_cache
from itertools import zip_longest
from typing import NamedTuple, NoReturn, TypeAlias

MAX_LENGTH = 1024
MAX_DEPTH = 16
MAX_COUNT = 100_000
NO = frozenset({"", "0", "no", "false", "off", "none"})
"""Values of an attribute for which its bare name is false."""

_TOKEN = re.compile(r"\s*(?:(?P<word>[\w.+:/-]+)|(?P<op>[<>!=]=|[<>=])|(?P<mark>[&|,!*()\[\]]))", re.ASCII)
NAME = re.compile(r"[A-Za-z_][\w.:/-]*", re.ASCII)
"""Pattern of the names of features and attributes."""
_AMOUNT = re.compile(r"(\d+(?:\.\d+)?)([KMGTP])(?:i?B)?", re.IGNORECASE | re.ASCII)
_MIB = {"K": 1 / 1024, "M": 1.0, "G": 1024.0, "T": 1024.0**2, "P": 1024.0**3}
_PIECE = re.compile(r"\d+|[^\d.+:/_-]+", re.ASCII)


@dataclass(frozen=True, slots=True)
class Term:
    """A feature (`op` empty), or a comparison of an attribute."""

    name: str
    op: str = ""
    value: str = ""


@dataclass(frozen=True, slots=True)
class Not:
    operand: Expression


@dataclass(frozen=True, slots=True)
class All:
    operands: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Any:
    operands: tuple[Expression, ...]


Expression: TypeAlias = Term | Not | All | Any


@dataclass(frozen=True, slots=True)
class Count:
    """At least `nodes` of the job's nodes match the expression."""

    operand: Expression
    nodes: int


@dataclass(frozen=True, slots=True)
class Constraint:
    each: Expression
    """The expression that every node must match; an empty `All` matches any node."""
    counts: tuple[Count, ...] = ()
    kinds: tuple[Expression, ...] = ()
    """Alternatives for the whole job: all nodes match the same alternative; empty: no such rule."""

    @property
    def nodes_min(self) -> int:
        """Sum of the counts: the minimum number of nodes."""
        return sum(count.nodes for count in self.counts)


ANYTHING = Constraint(All(()))


@dataclass(frozen=True, slots=True)
class _Kinds:
    """``[a|b]`` before the parser has checked its position."""

    operands: tuple[Expression, ...]


_Parsed: TypeAlias = Expression | Count | _Kinds


class _Token(NamedTuple):
    kind: str
    text: str
    position: int
    """Counted from 1."""


@lru_cache(maxsize=1024)
def parse_constraint(text: str) -> Constraint:
    """Parse a constraint; ValueError if its syntax is wrong."""
    if len(text) > MAX_LENGTH:
        raise ValueError(f"it has {len(text)} characters; the maximum is {MAX_LENGTH}")
    if not text.strip():
        raise ValueError("it is empty; name a feature, or compare an attribute as in cuda>=12.4")
    return _Parser(text).whole()


def min_nodes(text: str) -> int:
    """Return the minimum number of nodes of a constraint; 0 also for a syntax error, which is refused elsewhere."""
    try:
        return parse_constraint(text).nodes_min if text else 0
    except ValueError:
        return 0


class _Parser:
    """The recursive-descent parser of one constraint."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = tuple(self._split(text))
        self._at = 0
        self._depth = 0

    def whole(self) -> Constraint:
        parsed = self._any()
        if self._next.kind:
            self._fail(f"`{self._next.text}` where `&`, `|` or the end was expected")
        conjuncts = parsed.operands if isinstance(parsed, All) else (parsed,)
        flat = [operand for part in conjuncts for operand in (part.operands if isinstance(part, All) else (part,))]
        kinds = [operand for operand in flat if isinstance(operand, _Kinds)]
        if len(kinds) > 1:
            raise ValueError("it has `[… | …]` twice; only one such group is allowed")
        counts = tuple(operand for operand in flat if isinstance(operand, Count))
        each = tuple(operand for operand in flat if not isinstance(operand, Count | _Kinds))
        return Constraint(each[0] if len(each) == 1 else All(each), counts, kinds[0].operands if kinds else ())

    @staticmethod
    def _split(text: str) -> Iterator[_Token]:
        position, end = 0, len(text.rstrip())
        while position < end:
            match = _TOKEN.match(text, position)
            if match is None:
                start = position + len(text[position:]) - len(text[position:].lstrip())
                raise ValueError(f"at position {start + 1}, {text[start]!r} is not valid")
            assert match.lastgroup is not None
            yield _Token(match.lastgroup, match[match.lastgroup], match.start(match.lastgroup) + 1)
            position = match.end()
        yield _Token("", "the end", end + 1)

    @property
    def _next(self) -> _Token:
        return self._tokens[self._at]

    def _take(self, *texts: str) -> bool:
        """Consume the next token if it is one of `texts`."""
        is_one = self._next.kind in ("mark", "op") and self._next.text in texts
        self._at += is_one
        return is_one

    def _fail(self, what: str) -> NoReturn:
        raise ValueError(f"at position {self._next.position}, {what}")

    # ── the grammar ───────────────────────────────────────────────────────────────────────────────────────────

    def _any(self) -> _Parsed:
        operands = [self._all()]
        while self._take("|"):
            operands.append(self._all())
        return operands[0] if len(operands) == 1 else Any(tuple(map(self._about_one_node, operands)))

    def _all(self) -> _Parsed:
        operands = [self._operand()]
        while self._take("&", ","):
            operands.append(self._operand())
        if len(operands) == 1:
            return operands[0]
        return All(tuple(operands))  # type: ignore[arg-type]  # the callers take counts and kinds out, or refuse them

    def _operand(self) -> _Parsed:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            self._fail(f"it is nested deeper than {MAX_DEPTH}")
        try:
            if self._take("!"):
                return Not(self._about_one_node(self._operand()))
            if self._take("["):
                return self._bracket()
            if self._take("("):
                inner = self._about_one_node(self._any())
                self._close(")")
                return self._counted(inner)
            return self._counted(self._term())
        finally:
            self._depth -= 1

    def _bracket(self) -> _Parsed:
        """Parse the rest of a bracket: ``[a|b]`` are kinds; ``[a*2&b*2]`` means the same without brackets."""
        operands = [self._all()]
        while self._take("|"):
            operands.append(self._all())
        self._close("]")
        return operands[0] if len(operands) == 1 else _Kinds(tuple(map(self._about_one_node, operands)))

    def _close(self, mark: str) -> None:
        if not self._take(mark):
            self._fail(f"`{self._next.text}` where `{mark}` was expected")

    def _term(self) -> Term:
        name = self._next
        if name.kind != "word":
            self._fail(f"`{name.text}` where a feature or an attribute was expected")
        if not NAME.fullmatch(name.text):
            self._fail(f"`{name.text}` is not the name of a feature; these begin with a letter")
        self._at += 1
        op = self._next.text
        if self._next.kind != "op":
            return Term(name.text)
        self._at += 1
        value = self._next
        if value.kind != "word":
            self._fail(f"`{value.text}` where the value after `{op}` was expected")
        self._at += 1
        return Term(name.text, "=" if op == "==" else op, value.text)

    def _counted(self, operand: Expression) -> Expression | Count:
        if not self._take("*"):
            return operand
        number = self._next
        if not number.text.isdecimal() or not 1 <= int(number.text[:9]) <= MAX_COUNT:
            self._fail(f"`{number.text}` is not a number of nodes between 1 and {MAX_COUNT}")
        self._at += 1
        return Count(operand, int(number.text))

    def _about_one_node(self, operand: _Parsed) -> Expression:
        """Return the expression of one node; refuse expressions about all nodes together."""
        if isinstance(operand, Count | _Kinds) or (
            isinstance(operand, All) and any(isinstance(part, Count | _Kinds) for part in operand.operands)
        ):
            self._fail("counts (`*N`) and `[a|b]` apply to all nodes: they are not allowed inside `( )`, `!` or `|`")
        return operand


# ── matching ──────────────────────────────────────────────────────────────────────────────────────────────────


def is_met(expression: Expression, features: Set[str], attributes: Mapping[str, str]) -> bool:
    """Whether a node with these features and attributes matches the expression."""
    match expression:
        case Term(name, "", _):
            return name in features or attributes.get(name, "").lower() not in NO
        case Term(name, "!=", value):
            return not _compares(name, "=", value, attributes)
        case Term(name, op, value):
            return _compares(name, op, value, attributes)
        case Not(inner):
            return not is_met(inner, features, attributes)
        case All(operands):
            return all(is_met(part, features, attributes) for part in operands)
        case Any(operands):
            return any(is_met(part, features, attributes) for part in operands)


def names_in(constraint: Constraint) -> tuple[str, ...]:
    """Return every feature and attribute of the constraint once, in its order."""
    parts = (constraint.each, *(count.operand for count in constraint.counts), *constraint.kinds)
    return tuple(dict.fromkeys(name for part in parts for name in _names(part)))


def _names(expression: Expression) -> Iterator[str]:
    match expression:
        case Term(name, _, _):
            yield name
        case Not(inner):
            yield from _names(inner)
        case All(operands) | Any(operands):
            for part in operands:
                yield from _names(part)


def _compares(name: str, op: str, value: str, attributes: Mapping[str, str]) -> bool:
    has = attributes.get(name)
    if has is None:
        return False
    words = [word.strip() for word in has.split(",")]
    if op == "=":
        return any(word == value or compare(word, value) == 0 for word in words)
    is_so = _ORDERS[op]
    return all(is_so(compare(word, value)) for word in words)


_ORDERS: dict[str, Callable[[int], bool]] = {
    "<": lambda order: order < 0,
    "<=": lambda order: order <= 0,
    ">": lambda order: order > 0,
    ">=": lambda order: order >= 0,
}


def compare(left: str, right: str) -> int:
    """Return -1, 0 or 1: compare as amounts if a value has a unit and both are numbers, else as versions."""
    amounts = _amount(left), _amount(right)
    if amounts[0] is not None and amounts[1] is not None and not (_is_plain(left) and _is_plain(right)):
        return (amounts[0] > amounts[1]) - (amounts[0] < amounts[1])
    for left_piece, right_piece in zip_longest(_pieces(left), _pieces(right), fillvalue=(0, 0, "")):
        if left_piece != right_piece:
            return 1 if left_piece > right_piece else -1
    return 0


def _is_plain(text: str) -> bool:
    return not text[-1:].isalpha()


def _amount(text: str) -> float | None:
    """Return the amount in MiB; None if the text is no number."""
    if match := _AMOUNT.fullmatch(text):
        return float(match[1]) * _MIB[match[2].upper()]
    try:
        return float(text) if text[:1].isdecimal() else None
    except ValueError:
        return None


def _pieces(text: str) -> list[tuple[int, int, str]]:
    """Split a version; numbers sort after nothing, words before: 12.4rc1 < 12.4 < 12.4.1."""
    pieces = _PIECE.findall(text.lower())
    return [(0, int(piece[:18]), "") if piece[0].isdecimal() else (-1, 0, piece) for piece in pieces]
