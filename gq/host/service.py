"""The daemons of this host: their systemd units, and starting, stopping and restarting them.

With systemd, the daemons of the system's cluster are services; without it (containers, tests), and for a private
cluster, they are started in the background.  The module knows neither the daemons' work nor the content of gq.toml.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from gq.connection.locate import Location, is_listening
from gq.errors import Refusal
from gq.host import daemons
from gq.host.daemons import Daemon
from gq.host.files import lock_holder
from gq.host.interpreter import isolated_python

CONTROLLER = "gqd"
NODE = "gqnode"
UNIT_DIR = "/etc/systemd/system"
LOG_DIR = "/var/log/gq"
READY_WITHIN_S = 30.0
LINKED_WITHIN_S = 10.0
"""Maximum wait after starting a node daemon until the controller accepts it."""
STOP_WITHIN_S = 10.0
_POLL_S = 0.05
_TEMPLATES = Path(__file__).parent.parent / "systemd"
_PAGES = "share/man"
_A_PAGE = "man1/gqsub.1"
_SHARED = "/usr/local/share"
_SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


# ── manual pages ──────────────────────────────────────────────────────────────────────────────────────────────


def manual_hint(prefix: str = sys.prefix, search_path: str = _SYSTEM_PATH) -> str:
    """Return the command that makes man(1) find the pages of the installation in `prefix`.

    Empty if man finds them through a directory of `search_path`, as it does for ``/usr/local/bin`` in
    ``/usr/local/share/man``, or if no pages are installed, as in a clone.
    """
    pages = Path(prefix, _PAGES)
    found = (Path(directory).parent / _PAGES / _A_PAGE for directory in search_path.split(os.pathsep))
    if not (pages / _A_PAGE).exists() or any(page.exists() for page in found):
        return ""
    return f"the manual pages are in {pages}; to have `man gqsub` find them on this host:\n  cp -rsf {pages} {_SHARED}"


# ── units ─────────────────────────────────────────────────────────────────────────────────────────────────────


def unit_text(service: str, config_path: str) -> str:
    """Return the unit of a daemon as it is installed here."""
    text = (_TEMPLATES / f"{service}.service").read_text()
    return text.replace("@COMMAND@", " ".join(_command(service))).replace("@CONFIG@", config_path)


def _command(service: str) -> tuple[str, ...]:
    """Return the console script of this installation; without one, this Python with the module."""
    beside = Path(sys.executable).parent / service
    found = str(beside) if beside.exists() else shutil.which(service)
    return (found,) if found else (*isolated_python({}), "-m", service)


def install_unit(service: str, config_path: str, prefix: str = "") -> tuple[Path, bool]:
    """Write the unit below `prefix`; return its path, and whether it changed."""
    path = Path(f"{prefix}{UNIT_DIR}/{service}.service")
    text = unit_text(service, config_path)
    try:
        if path.exists() and path.read_text() == text:
            return path, False
        path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        fresh = path.with_name(f".{path.name}.{os.getpid()}")
        fresh.write_text(text)
        fresh.chmod(0o644)
        fresh.replace(path)
    except OSError as error:
        raise Refusal("cannot_write", f"{path} cannot be written: {error.strerror}", "run it as root") from error
    return path, True


def has_systemd() -> bool:
    """Whether systemd runs this machine, as sd_booted(3) checks."""
    return Path("/run/systemd/system").is_dir()


def enable(service: str) -> None:
    """Start the unit now and at every boot; `Refusal` with the message of systemctl."""
    _systemctl(service, "daemon-reload")
    _systemctl(service, "enable", "--now", f"{service}.service")


def disable(service: str) -> None:
    """Disable the unit at the next boot, without stopping it; no effect without a unit."""
    if Path(UNIT_DIR, f"{service}.service").exists():
        _systemctl(service, "disable", f"{service}.service")


def stop(service: str) -> None:
    if Path(UNIT_DIR, f"{service}.service").exists():
        _systemctl(service, "stop", f"{service}.service")


def _systemctl(service: str, *words: str) -> None:
    done = subprocess.run(["systemctl", *words], capture_output=True, text=True)
    if done.returncode != 0:
        raise Refusal(
            "not_started",
            f"`systemctl {' '.join(words)}` failed: {done.stderr.strip() or done.returncode}",
            f"see `journalctl -u {service}`",
        )


# ── starting ──────────────────────────────────────────────────────────────────────────────────────────────────


def start(service: str, location: Location, is_ready: Callable[[], bool], is_anew: bool = False) -> str:
    """Start a daemon, wait until it is ready, and return where its log is.

    A daemon that is ready is left alone, and the result is empty; with `is_anew` it is stopped first, since its
    settings and keys have changed.
    """
    if is_ready() and not is_anew:
        return ""
    if has_systemd():
        if not Path(UNIT_DIR, f"{service}.service").exists():
            install_unit(service, location.config_path)
        enable(service)
        if is_anew:
            _systemctl(service, "restart", f"{service}.service")
        log = f"journalctl -u {service}"
        _await(is_ready, lambda: None, f"see `{log}`")
        return log
    daemon = background(service, location)
    if is_anew:
        daemons.stop([daemon])
    process = None
    log_begin = daemons.log_size(daemon)
    if daemon.pid() is None:
        Path(LOG_DIR).mkdir(mode=0o750, parents=True, exist_ok=True)
        process = daemons.start(daemon, _environment(location))
    _await(is_ready, lambda: _check_alive(daemon, process, log_begin), f"its log is {daemon.log_path}")
    return str(daemon.log_path)


def background(service: str, location: Location, node: str = "") -> Daemon:
    """Return the daemon of the system's cluster as a background process with its pid file and log."""
    return Daemon(
        name=service,
        module=service,
        arguments=(*(("--name", node) if node else ()), "--config", location.config_path),
        directory=location.state_dir,
        log_directory=LOG_DIR,
    )


def _environment(location: Location) -> dict[str, str]:
    """Return an environment as from a service manager: of the terminal's variables, only locale, PATH and time zone."""
    kept = {name: os.environ[name] for name in ("LANG", "LC_ALL", "PATH", "TZ") if name in os.environ}
    return {"PATH": _SYSTEM_PATH, **kept, **location.environment()}


def _await(is_ready: Callable[[], bool], check: Callable[[], None], hint: str) -> None:
    deadline = time.monotonic() + READY_WITHIN_S
    while not is_ready():
        check()
        if time.monotonic() > deadline:
            raise Refusal("not_ready", f"it was started but is not ready after {READY_WITHIN_S:g} s", hint)
        time.sleep(_POLL_S)


def _check_alive(daemon: Daemon, process: subprocess.Popen[bytes] | None, log_begin: int) -> None:
    """Raise `Refusal` if the daemon has ended.  `process`: None if it ran before; `log_begin`: byte in its log."""
    if process is None or process.poll() is None:
        return
    daemon.pid_path.unlink(missing_ok=True)
    raise Refusal(
        "daemon_failed",
        f"{daemon.name} did not start; {daemon.log_path} ends with:\n{daemons.log_tail(daemon, begin=log_begin)}",
        "fix the error and try again",
    )


# ── start, stop, restart ──────────────────────────────────────────────────────────────────────────────────────


def control(verb: str, service: str, location: Location, nodes: Sequence[str]) -> Iterator[str]:
    """Start, stop or restart a daemon of this host, or these nodes' daemons; yield a line for each when it is done."""
    _check_rights(verb, service, location)
    if has_systemd() and not location.is_private:
        if not Path(UNIT_DIR, f"{service}.service").exists():
            install_unit(service, location.config_path)
            _systemctl(service, "daemon-reload")
        _systemctl(service, verb, f"{service}.service")
        yield f"{_DONE[verb].format(service)}; its log: journalctl -u {service}"
        return
    for node in nodes if service == NODE else ("",):
        daemon = _daemon(service, location, node)
        lock = location.lock_path(f"{service}-{node}" if node else service)
        if verb != "start":
            yield _stop_process(daemon, lock)
        if verb != "stop":
            yield _start_process(daemon, lock, location, node)


_DONE = {"start": "{} runs", "stop": "{} has stopped", "restart": "{} was restarted"}


def _check_rights(verb: str, service: str, location: Location) -> None:
    """Refuse a user who is not root for the system's cluster, or not the owner of a private cluster."""
    command = f"`{service} {verb}`"
    if not Path(location.config_path).exists():
        raise Refusal("no_config", f"{location.config_path} does not exist", "name the cluster with --dir or --config")
    if not location.is_private and os.geteuid() != 0:
        raise Refusal("needs_root", f"{command} controls the daemon of the system's cluster: run it as root")
    owner_uid = Path(location.config_path).stat().st_uid
    if location.is_private and owner_uid != os.geteuid():
        message = f"{command}: the cluster in {location.state_dir} belongs to uid {owner_uid}, not to {os.geteuid()}"
        raise Refusal("not_owner", message, f"run it as that user: setpriv --reuid={owner_uid} {service} …")


def _daemon(service: str, location: Location, node: str) -> Daemon:
    if not location.is_private:
        return background(service, location, node)
    everyone = daemons.daemons_of(location, [node] if node else [])
    return everyone[-1]


def _stop_process(daemon: Daemon, lock: str) -> str:
    """Stop the daemon that holds the lock, however it was started."""
    pid = lock_holder(lock) or daemon.pid()
    if pid is None:
        return f"{daemon.name} did not run"
    left = daemons.end({pid: daemon.name}, signal.SIGTERM, STOP_WITHIN_S)
    daemons.end(left, signal.SIGKILL, STOP_WITHIN_S)
    daemon.pid_path.unlink(missing_ok=True)
    how = f"was killed because it did not stop within {STOP_WITHIN_S:g} s" if left else "has stopped"
    return f"{daemon.name} (process {pid}) {how}"


def _start_process(daemon: Daemon, lock: str, location: Location, node: str) -> str:
    pid = lock_holder(lock)
    if pid is not None:
        return f"{daemon.name} runs already (process {pid})"
    if location.is_private:
        environ = daemons.environment(location, os.environ)
    else:
        Path(LOG_DIR).mkdir(mode=0o750, parents=True, exist_ok=True)
        environ = _environment(location)
    log_begin = daemons.log_size(daemon) if daemon.log_directory else 0
    process = daemons.start(daemon, environ)
    if node:
        is_ready = _await_link(daemon, process, log_begin, location.member_path(node))
    else:
        is_ready = True
        _await(
            lambda: is_listening(location.client_socket) and lock_holder(lock) == process.pid,
            lambda: _check_alive(daemon, process, log_begin),
            f"its log is {daemon.log_path}",
        )
    state = "runs" if is_ready else "runs, not yet connected to its controller"
    return f"{daemon.name} {state} (process {process.pid}); its log: {daemon.log_path}"


def _await_link(daemon: Daemon, process: subprocess.Popen[bytes], log_begin: int, member_path: str) -> bool:
    """Wait until the controller accepts the node; False after a while, since a node also runs without it."""
    deadline = time.monotonic() + LINKED_WITHIN_S
    while time.monotonic() < deadline:
        _check_alive(daemon, process, log_begin)
        try:
            if int(Path(member_path).read_text()) == process.pid:
                return True
        except (OSError, ValueError):
            pass
        time.sleep(_POLL_S)
    return False
