"""The rules of the house that a machine can check: purity, direction of imports, proportion, honest tests.

That the documents agree with the code is checked in `tests/test_documents.py`.
"""

from __future__ import annotations

import ast
import re
import statistics
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
pytestmark = [
    pytest.mark.xdist_group("tidy"),  # so that the code is parsed once
    pytest.mark.slow,  # `make check` runs these rules
]

PACKAGES = ("gq", "gqd", "gqnode")

PURE = (
    "gq/errors.py",
    "gq/near_miss.py",
    "gq/units.py",
    "gq/version.py",
    "gq/model/",
    "gq/wire/",
    "gqd/state/",
    "gqd/sched/",
    "gqd/control/",
    "gqd/store/protocol.py",
    "gqd/store/rows/columns.py",
    "gqd/store/rows/rows.py",
    "gqnode/control/",
    "gqnode/accel/protocol.py",
)
"""Files and folders that decide or describe: facts in, facts out.  So are modules that call themselves pure."""

PURE_IMPORTS = frozenset({
    "__future__", "abc", "array", "bisect", "collections", "collections.abc", "contextlib", "copy", "dataclasses",
    "datetime", "difflib", "enum", "fractions", "functools", "hashlib", "heapq", "hmac", "ipaddress", "itertools",
    "json", "math", "operator", "posixpath", "re", "signal", "string", "struct", "typing", "urllib.parse",
    "msgspec", "numpy"
})  # fmt: skip
"""What a pure module may import besides other pure modules: nothing that can see the world."""

IMPURE_CALLS = frozenset({
    "open", "print", "input", "exec", "eval", "compile", "__import__", "breakpoint", "datetime.now",
    "datetime.utcnow", "datetime.today", "date.today", "np.random", "numpy.random", "signal.signal", "signal.alarm",
    "signal.raise_signal", "signal.set_wakeup_fd"
})  # fmt: skip

FORBIDDEN_IMPORTS = {
    "gq/": ("gqd", "gqnode", "asyncio", "sqlite3", "sqlite_utils", "pynvml", "zmq.asyncio", "numpy", "psutil"),
    "gqd/": ("gqnode", "pynvml", "psutil", "gq.cli", "rich"),
    "gqnode/": ("gqd", "sqlite3", "sqlite_utils", "numpy", "gq.cli", "rich"),
    "gq/model/": ("gq.wire", "gq.cli", "gq.connection.client", "gq.config.config"),
    "gqd/state/": ("gqd.sched", "gqd.control", "gqd.store", "gqd.shell"),
    "gqd/sched/": ("gqd.control", "gqd.store", "gqd.shell"),
    "gqd/control/": ("gqd.shell", "gqd.store.sqlite", "gqd.store.memory"),
    "gqd/store/": ("gqd.control", "gqd.sched", "gqd.shell"),
    "gqnode/control/": ("gqnode.daemon", "gqnode.shepherd", "gqnode.isolation", "gqnode.accel"),
    "gqnode/shepherd/": (
        "gq.model",
        "gq.wire",
        "gqnode.daemon",
        "gqnode.control",
        "gqnode.isolation",
        "gqnode.accel",
        "msgspec",
        "zmq",
    ),
}
"""Imports point one way.  A shepherd is a process of its own for each attempt: it loads the standard library alone."""

COMMANDS = ("gq/cli/", "gqd/sim/gqsim.py")
"""gqsim is a command, and lives where what it rehearses may be imported."""

VAGUE_NAMES = frozenset({
    "utils", "helpers", "common", "manager", "misc", "tools", "util", "helper", "base", "core"
})  # fmt: skip
BASES = frozenset({
    "Protocol", "Generic", "NamedTuple", "TypedDict", "Enum", "StrEnum", "IntEnum", "IntFlag", "Flag", "Exception",
    "AssertionError", "msgspec.Struct", "ctypes.Structure", "ctypes.Union", "Structure", "Union",
    "logging.Formatter", "logging.Filter", "logging.LoggerAdapter"
})  # fmt: skip
"""What a class may inherit from, besides errors and the tagged bases and tables of its own module or package."""

MAX_FILE_LINES = 700
MAX_FUNCTION_LINES = 100
P95_FUNCTION_LINES = 50
MEDIAN_FUNCTION_LINES = 15


FRAGMENT = re.compile(
    r"(Of|As|It|Its|With|By|That|Those|Who|Whom|Whose|Whoever|What|Whatever|They|Nobody|Somebody|One|Some|Else|So"
    r"|Likewise)\b"
)
"""How a docstring begins that does not name its subject."""


# ── reading the source ────────────────────────────────────────────────────────────────────────────────────────


@cache
def sources(*tops: str) -> tuple[Path, ...]:
    return tuple(sorted(path for top in tops for path in (ROOT / top).rglob("*.py")))


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), filename=str(path))


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def at(path: Path, node: ast.AST) -> str:
    return f"{relative(path)}:{getattr(node, 'lineno', 1)}"


@cache
def is_pure(path: Path) -> bool:
    says_so = re.search(r"\bPure[.:]", ast.get_docstring(tree(path)) or "")
    return bool(says_so) or any(relative(path).startswith(one) for one in PURE)


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


@cache
def imports(path: Path) -> tuple[tuple[str, ast.AST], ...]:
    """Every module that a file imports, also inside functions: ``from a import b`` is ``a`` and perhaps ``a.b``."""
    found: list[tuple[str, ast.AST]] = []
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            found += [(alias.name, node) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{at(path, node)}: relative import"
            found.append((node.module or "", node))
            found += [(f"{node.module}.{alias.name}", node) for alias in node.names if _is_module(node, alias.name)]
    return tuple(found)


def _is_module(node: ast.ImportFrom, name: str) -> bool:
    place = ROOT.joinpath(*(node.module or "").split("."), name)
    return place.is_dir() or place.with_suffix(".py").exists() or f"{node.module}.{name}" == "zmq.asyncio"


def functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (node for node in ast.walk(tree(path)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def lines_of(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


CODE = sources(*PACKAGES)
TESTS = sources("tests")


def of_each(paths: Callable[[], Iterable[Path]]) -> Callable[[Callable[[Path], None]], Callable[[], None]]:
    """Make of a rule for one file one test of all, which names every file that breaks the rule.

    `paths` is called by the test: each process of a run imports this module, and not each has to parse the code.
    """

    def made_of(rule: Callable[[Path], None]) -> Callable[[], None]:
        def test() -> None:
            broken = [f"{relative(path)}: {why}" for path in paths() if (why := _complaint(rule, path))]
            assert not broken, "\n".join(broken)

        test.__name__, test.__doc__ = rule.__name__, rule.__doc__
        return test

    return made_of


def _complaint(rule: Callable[[Path], None], path: Path) -> str:
    try:
        rule(path)
    except AssertionError as error:
        return str(error).partition("\n")[0] or "it breaks the rule"
    return ""


each_file = of_each(lambda: CODE)
each_pure_file = of_each(lambda: [path for path in CODE if is_pure(path)])
each_test_file = of_each(lambda: TESTS)


# ── purity ────────────────────────────────────────────────────────────────────────────────────────────────────


@each_pure_file
def test_pure_code_imports_nothing_that_can_see_the_world(path: Path) -> None:
    pure_modules = {module_name(one) for one in CODE if is_pure(one)}
    wrong = [
        f"{at(path, node)}: {name}"
        for name, node in imports(path)
        if name not in pure_modules and name not in _namespaces(pure_modules) and not _may_be_imported(name, node)
    ]

    assert wrong == []


def _may_be_imported(name: str, node: ast.AST) -> bool:
    is_version = ast.unparse(node) == "from gq import __version__"
    return is_version or name in PURE_IMPORTS or name.partition(".")[0] in ("msgspec", "numpy", "cronsim")


def _namespaces(modules: set[str]) -> set[str]:
    """Packages that hold nothing of their own: ``from gqd.state import event`` names ``gqd.state`` too."""
    packages = {name.rpartition(".")[0] for name in modules}
    return {name for name in packages if not _has_code(name)}


def _has_code(package: str) -> bool:
    init = ROOT.joinpath(*package.split("."), "__init__.py")
    return init.exists() and any(not isinstance(node, ast.Expr) for node in tree(init).body)


@each_pure_file
def test_pure_code_reads_no_clock_no_file_and_no_chance(path: Path) -> None:
    calls = [node for node in ast.walk(tree(path)) if isinstance(node, ast.Call)]
    wrong = [f"{at(path, call)}: {ast.unparse(call.func)}" for call in calls if _is_impure(ast.unparse(call.func))]

    assert wrong == []


def _is_impure(name: str) -> bool:
    return name in IMPURE_CALLS or any(name.startswith(f"{one}.") for one in IMPURE_CALLS)


@each_pure_file
def test_pure_code_does_not_walk_a_set_in_its_random_order(path: Path) -> None:
    loops = [node.iter for node in ast.walk(tree(path)) if isinstance(node, ast.For | ast.comprehension)]
    wrong = [at(path, node) for node in loops if isinstance(node, ast.Set | ast.SetComp) or _makes_set(node)]

    assert wrong == []


def _makes_set(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and ast.unparse(node.func) in ("set", "frozenset")


# ── direction of imports ──────────────────────────────────────────────────────────────────────────────────────


@each_file
def test_imports_point_one_way(path: Path) -> None:
    forbidden = [name for top, names in FORBIDDEN_IMPORTS.items() if relative(path).startswith(top) for name in names]
    if relative(path).startswith(COMMANDS):
        forbidden = [name for name in forbidden if name != "gq.cli"]
    wrong = [
        f"{at(path, node)}: {name}" for name, node in imports(path) if any(_is_within(name, one) for one in forbidden)
    ]

    assert wrong == []


def _is_within(name: str, package: str) -> bool:
    return name == package or name.startswith(f"{package}.")


def test_no_modules_import_each_other_in_a_circle() -> None:
    """Imports for type checkers count: a circle of types is a circle for the reader."""
    modules = {module_name(path): path for path in CODE if path.name != "__init__.py"}
    graph = {name: {imported for imported, _ in imports(path)} & modules.keys() for name, path in modules.items()}

    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" → ".join(reversed(error.args[1])))


@each_file
def test_only_a_command_imports_a_command(path: Path) -> None:
    wrong = [at(path, node) for name, node in imports(path) if _is_within(name, "gq.cli")]

    assert relative(path).startswith(COMMANDS) or wrong == []


@pytest.mark.parametrize(
    "module", ["gq.cli._run", "gq.cli.framework.command", "gq.cli.framework.invoke", "gq.connection.locate"]
)
def test_what_every_command_starts_with_loads_nothing_heavy(module: str) -> None:
    heavy = ["asyncio", "sqlite3", "typer", "rich", "click", "numpy", "zmq", "psutil", "logging", "tomllib"]
    code = f"import sys, {module}; print(*[name for name in {heavy} if name in sys.modules])"

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)

    assert done.stdout.split() == []


COMES_WITH = {"click": "typer"}
"""Modules of a dependency's own dependency, which it promises to bring."""


def test_every_dependency_is_used_and_every_import_is_a_dependency() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    module_of = {"pyzmq": "zmq", "nvidia-ml-py": "pynvml", "sqlite-utils": "sqlite_utils"}
    named = {_distribution(line) for line in project["dependencies"]}
    wanted = {module_of.get(name, name) for name in named}
    imported = {name.partition(".")[0] for path in CODE + sources("examples") for name, _ in imports(path)}
    foreign = imported - set(sys.stdlib_module_names) - set(PACKAGES) - COMES_WITH.keys()

    assert foreign == wanted


def _distribution(requirement: str) -> str:
    return requirement.replace("<", " ").replace(">", " ").replace("=", " ").split()[0]


@each_file
def test_a_child_interpreter_imports_nothing_from_the_working_directory(path: Path) -> None:
    commands = [node.elts for node in ast.walk(tree(path)) if isinstance(node, ast.List | ast.Tuple) and node.elts]
    pythons = [words for words in commands if ast.unparse(words[0]) == "sys.executable"]
    wrong = [at(path, words[0]) for words in pythons if len(words) < 2 or "'-I'" not in ast.unparse(words[1])]

    assert wrong == []


# ── shape ─────────────────────────────────────────────────────────────────────────────────────────────────────


@each_file
def test_a_docstring_names_its_subject(path: Path) -> None:
    """Of modules, classes, functions and fields: no docstring begins with a preposition or a pronoun."""
    wrong = [f"{at(path, text)}: {text.value[:40]}" for text in _docstrings(path) if FRAGMENT.match(text.value)]

    assert wrong == []


def _docstrings(path: Path) -> Iterator[ast.Constant]:
    for node in ast.walk(tree(path)):
        body = getattr(node, "body", None)
        for statement in body if isinstance(body, list) else ():
            value = statement.value if isinstance(statement, ast.Expr) else None
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                yield value


RETIRED = frozenset({
    "appease", "appetite", "anybody", "briefing", "claimant", "dealing", "desk", "far", "foremost", "gift", "glance",
    "ground", "hears", "herd", "hungry", "introductions", "lanes", "nobody", "outlet", "rehearsal", "rooms", "saying",
    "soak", "somebody", "someone", "stands", "story", "stretch", "tells", "turning", "whoever",
})  # fmt: skip
"""Words that earlier names used for terms of gq-glossary(7), or for no term at all."""


@each_file
def test_no_name_uses_a_retired_word(path: Path) -> None:
    """Applies to modules, classes and functions."""
    kinds = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    names = [path.stem, *(node.name for node in ast.walk(tree(path)) if isinstance(node, kinds))]
    wrong = [name for name in names if RETIRED & {word.lower() for word in re.findall(r"[A-Z]?[a-z]+", name)}]

    assert wrong == []


@each_file
def test_a_module_says_what_it_owns(path: Path) -> None:
    has_code = any(not isinstance(node, ast.Expr) for node in tree(path).body)

    assert not has_code or ast.get_docstring(tree(path)), f"{relative(path)} has no docstring"


@each_file
def test_a_module_has_a_name_that_says_something(path: Path) -> None:
    assert path.stem.strip("_") not in VAGUE_NAMES


@each_file
def test_no_module_keeps_state(path: Path) -> None:
    assigned = [node for node in tree(path).body if isinstance(node, ast.Assign | ast.AnnAssign)]
    containers = {name: node for node in assigned for name in _names(node) if node.value and _is_container(node.value)}
    wrong = [f"{at(path, node)}: {name}" for name, node in containers.items() if not _is_constant_name(name)]
    wrong += [f"{at(path, node)}: changes {name}" for node, name in _changes(tree(path)) if name in containers]
    wrong += [f"{at(path, node)}: global" for node in ast.walk(tree(path)) if isinstance(node, ast.Global)]

    assert wrong == []


def _names(node: ast.Assign | ast.AnnAssign) -> list[str]:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return [target.id for target in targets if isinstance(target, ast.Name)]


def _is_constant_name(name: str) -> bool:
    return name.isupper() or name.startswith("__")


def _is_container(node: ast.expr) -> bool:
    if isinstance(node, ast.Call):
        return ast.unparse(node.func) in ("list", "dict", "set", "deque", "defaultdict", "Counter", "bytearray")
    return isinstance(node, ast.List | ast.Dict | ast.Set | ast.ListComp | ast.DictComp | ast.SetComp)


def _changes(module: ast.Module) -> Iterator[tuple[ast.AST, str]]:
    """Places that change a container in place, with its name: ``X[…] = …``, ``del X[…]``, ``X.append(…)`` …"""
    verbs = {
        "append",
        "add",
        "update",
        "setdefault",
        "pop",
        "popitem",
        "clear",
        "extend",
        "insert",
        "remove",
        "discard",
    }
    for node in ast.walk(module):
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store | ast.Del):
            yield node, ast.unparse(node.value)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in verbs:
            yield node, ast.unparse(node.func.value)


@each_file
def test_classes_inherit_from_protocols_structs_and_errors_only(path: Path) -> None:
    classes = [node for node in ast.walk(tree(path)) if isinstance(node, ast.ClassDef)]
    wrong = [
        f"{at(path, node)}: {node.name}({base})"
        for node in classes
        for base in (ast.unparse(one).partition("[")[0] for one in node.bases)
        if base not in BASES and not base.endswith(("Error", "Refusal", "Unreachable")) and not _grows(path, base)
    ]

    assert wrong == []


def _grows(path: Path, base: str) -> bool:
    """A Struct or Protocol that others grow out of: in this file, or in one that it imports from."""
    imported = (_file_of(name) for name, _ in imports(path) if name.partition(".")[0] in PACKAGES)
    for file in (path, *filter(None, imported)):
        for node in tree(file).body:
            if isinstance(node, ast.ClassDef) and node.name == base:
                parents = {ast.unparse(one).partition("[")[0] for one in node.bases}
                return bool(parents & {"msgspec.Struct", "Protocol"}) or any(_grows(file, one) for one in parents)
    return False


def _file_of(module: str) -> Path | None:
    path = ROOT.joinpath(*module.split("."))
    return next((one for one in (path.with_suffix(".py"), path / "__init__.py") if one.exists()), None)


@each_file
def test_a_file_is_short_enough_to_be_read(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= MAX_FILE_LINES


@each_file
def test_no_function_is_a_chapter(path: Path) -> None:
    wrong = [f"{at(path, node)}: {node.name}" for node in functions(path) if lines_of(node) > MAX_FUNCTION_LINES]

    assert wrong == []


def test_nearly_all_functions_are_small() -> None:
    sizes = [lines_of(node) for path in CODE for node in functions(path)]

    assert statistics.quantiles(sizes, n=20)[-1] < P95_FUNCTION_LINES
    assert statistics.median(sizes) < MEDIAN_FUNCTION_LINES


@each_file
def test_nothing_is_left_unwritten(path: Path) -> None:
    wrong = [
        f"{at(path, node)}: {node.name}"
        for node in functions(path)
        if _is_unwritten(node) and not _is_in_protocol(path, node)
    ]

    assert wrong == []


def _is_unwritten(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """``...`` and `NotImplementedError`; a private function that does nothing may say so in its docstring."""
    if any(ast.unparse(one).endswith("overload") for one in node.decorator_list):
        return False
    body = [one for one in node.body if not (isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant))]
    says_why = ast.get_docstring(node) is not None and node.name.startswith("_")
    return (not body and not says_why) or (bool(body) and "NotImplementedError" in ast.unparse(body[-1]))


def _is_in_protocol(path: Path, node: ast.AST) -> bool:
    protocols = [
        one
        for one in ast.walk(tree(path))
        if isinstance(one, ast.ClassDef) and any(ast.unparse(base).startswith("Protocol") for base in one.bases)
    ]
    return any(node in protocol.body for protocol in protocols)


@pytest.mark.parametrize("word", ["TO" + "DO", "FIX" + "ME", "XX" + "X", "HA" + "CK"])
def test_no_file_says_that_something_is_still_to_be_done(word: str) -> None:
    texts = [*CODE, *TESTS, *(ROOT / "man").glob("*"), *ROOT.glob("*.md"), ROOT / "Makefile", ROOT / "pyproject.toml"]
    wrong = [relative(path) for path in texts if path.is_file() and word in path.read_text(errors="replace").split()]

    assert wrong == []


# ── tests ─────────────────────────────────────────────────────────────────────────────────────────────────────

MAX_PAUSE_S = 0.2
ASSERTING = ("assert", "check", "expect", "wait_until", "until", "await_", "raises", "fail", "ok", "refused", "must")
"""Beginnings of names of functions that fail a test."""


@each_test_file
def test_every_test_can_fail(path: Path) -> None:
    tests = [node for node in functions(path) if node.name.startswith("test_")]
    wrong = [f"{at(path, node)}: {node.name}" for node in tests if not _can_fail(node)]

    assert wrong == []


def _can_fail(test: ast.AST) -> bool:
    for node in ast.walk(test):
        if isinstance(node, ast.Assert | ast.Raise):
            return True
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func).rpartition(".")[2].lstrip("_")
            if name.startswith(ASSERTING):
                return True
    return False


@each_test_file
def test_a_test_sleeps_only_while_it_waits_for_a_condition(path: Path) -> None:
    parents = {child: node for node in ast.walk(tree(path)) for child in ast.iter_child_nodes(node)}
    sleeps = [
        node
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("time.sleep", "asyncio.sleep", "sleep")
    ]
    wrong = [at(path, node) for node in sleeps if not (_is_short(node) or _is_in_loop_or_peer(node, parents))]

    assert wrong == []


def _is_short(sleep: ast.Call) -> bool:
    """Others may go on meanwhile (``asyncio.sleep(0)``), or something must be seen not to happen."""
    return all(isinstance(one, ast.Constant) and float(str(one.value)) <= MAX_PAUSE_S for one in sleep.args)


def _is_in_loop_or_peer(node: ast.AST, parents: dict[ast.AST, ast.AST]) -> bool:
    """In a loop that waits for a condition, or in a function that plays a slow peer."""
    while node in parents and not isinstance(node, ast.FunctionDef | ast.Lambda):
        node = parents[node]
        if isinstance(node, ast.While | ast.For | ast.AsyncFor):
            return True
    return isinstance(node, ast.Lambda) or (isinstance(node, ast.FunctionDef) and not node.name.startswith("test_"))


@each_test_file
def test_the_name_of_a_test_is_a_sentence(path: Path) -> None:
    tests = [node for node in functions(path) if node.name.startswith("test_")]
    wrong = [f"{at(path, node)}: {node.name}" for node in tests if node.name.count("_") < 3]

    assert wrong == []


def test_tests_of_a_group_are_known_as_such_to_whoever_deals_them_out(request: pytest.FixtureRequest) -> None:
    """Else each process sets up what a module shares, and what must not meet does; there is no other sign of it."""
    if not getattr(request.config.option, "loadgroup", False):
        pytest.skip("they are not dealt out by groups (make test does)")
    assert request.node.nodeid.endswith("@tidy")
