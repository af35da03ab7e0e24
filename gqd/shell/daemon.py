"""The gqd process: assembles its parts, opens the listeners, runs the loop, and closes everything in order.

Owns signals, the pid file, the exit status and, with the store, the locks that keep a second gqd out.
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path

from gq.config.config import Config
from gq.connection.locate import ROOT_UID, Location, is_run_for_all
from gq.connection.socket_dirs import remove_left_over
from gq.errors import GqError
from gq.host.clock import Clock
from gq.host.error_text import complain
from gq.host.fd_limit import raise_descriptor_limit
from gq.host.files import hold_lock
from gq.host.log import log_reopener
from gqd.admin.system_user import become, prepare
from gqd.control.controller import Controller
from gqd.sched.planner import Planner
from gqd.shell.commit_queue import CommitQueue
from gqd.shell.dispatch import EffectDispatcher
from gqd.shell.estimating import Estimating
from gqd.shell.inbox import Inbox
from gqd.shell.listeners.keys import KeyRing
from gqd.shell.listeners.listeners import Listeners
from gqd.shell.listeners.users import UserDirectory
from gqd.shell.log import LOG, set_up_logging
from gqd.shell.loop import Loop
from gqd.shell.metrics import Counters
from gqd.shell.notify.notifier import Notifier
from gqd.shell.planning import Planning
from gqd.shell.reload import Reloader
from gqd.shell.requests.cron_fire import CronFire
from gqd.shell.requests.dependency_lookup import DependencyLookup
from gqd.shell.requests.event_stream import EventQueries
from gqd.shell.requests.history import HistoryQueries
from gqd.shell.requests.submit_hook import HookQueue, HookSettings, hook_settings, log_if_broken
from gqd.shell.retention import Retention
from gqd.shell.settings import policy_of
from gqd.shell.zones import load_zones, zones_of
from gqd.state.cluster import Cluster
from gqd.state.input import KeyFileDeleted
from gqd.state.policy import Policy
from gqd.store.blobs import SqliteBlobStore
from gqd.store.protocol import BlobStore, Store, StoreFailed
from gqd.store.sqlite import SqliteStore, in_use

MANY_JOBS = 10_000
GARBAGE_LOOK = 10_000
"""New objects between two runs of the garbage collector; almost nothing here is in cycles."""


async def serve(location: Location, config: Config, store: Store, blobs: BlobStore) -> None:
    """Run the controller until SIGTERM or SIGINT; raises any other cause of its end."""
    clock = Clock()
    counters = Counters()
    owner_uid = ROOT_UID if is_run_for_all(location) else os.geteuid()  # not the uid that gqd runs as
    policy = policy_of(config, owner_uid, location)
    core = Controller(_loaded(store), policy)
    core.volatile.zones = load_zones(zones_of(core.cluster))
    loop = Loop(core, Planning(core, Planner()), clock, policy.timers.tick_s, counters, Estimating(core))
    with ExitStack() as stack:
        inbox = Inbox(config.limits.inbox, on_item=loop.wake, on_room=lambda: listeners.poll_soon())
        ring = KeyRing(lambda: core.cluster.keys, location.keys_dir, clock.now, lambda: core.cluster.void_key_files)
        past = DependencyLookup(
            store, lambda one: one in core.cluster.jobs, inbox.put, lambda reply: dispatcher.reply(reply)
        )
        stack.callback(past.close)
        hook = HookQueue(hook_settings(config), past.take)
        users = UserDirectory(owner_uid, policy.is_shared)
        listeners = Listeners(location, config, inbox, counters, users, ring, hook.take)
        stack.callback(listeners.close)
        history = HistoryQueries(store, policy.limits.page, lambda reply: dispatcher.reply(reply))
        stack.callback(history.close)
        remove_key_file = partial(_remove_key_file, ring, inbox)
        fire_cron = CronFire(users, hook.take).fire
        reloader = Reloader(location, config, policy, inbox, lambda *said: adopt(*said))
        notifier = Notifier(config.notify, users, inbox)
        stack.callback(notifier.close)
        events = EventQueries(store, lambda reply: dispatcher.reply(reply))
        stack.callback(events.close)
        dispatcher = EffectDispatcher(
            listeners.opened,
            policy,
            counters,
            history.ask,
            remove_key_file,
            reloader.read,
            fire_cron,
            notifier.take,
            events.ask,
        )
        commit_queue = CommitQueue(store, blobs, events.telling(dispatcher.release), on_change=loop.wake)
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, loop.stop)
        reopen_log = log_reopener()

        def hang_up() -> None:
            reopen_log()
            reloader.read()

        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, hang_up)

        def adopt(before: Config, config: Config, policy: Policy, fresh: HookSettings) -> None:
            has_other_beat = policy.timers.heartbeat_s != dispatcher.policy.timers.heartbeat_s
            log = (config.controller.log_level, config.controller.log_json)
            if log != (before.controller.log_level, before.controller.log_json):
                set_up_logging(*log)
            loop.tick_s, history.page, dispatcher.policy = policy.timers.tick_s, policy.limits.page, policy
            hook.adopt(fresh)
            notifier.settings = config.notify
            if has_other_beat:
                dispatcher.welcome_again()

        listeners.open()
        stack.enter_context(_pid_file(Path(location.state_dir, "gqd.pid")))
        fields = {"cluster": config.cluster, "doors": location.run_dir, "is_shared": policy.is_shared}
        LOG.info("gqd is ready", extra={"fields": fields})
        trial = asyncio.create_task(log_if_broken(hook_settings(config)))
        stack.callback(trial.cancel)
        retention = asyncio.create_task(Retention(store, blobs, config.history).run())
        stack.callback(retention.cancel)
        try:
            await loop.run(inbox, blobs, commit_queue)
        finally:
            await reloader.close()
            await hook.close()
        LOG.info("gqd stops", extra={"fields": {"cluster": config.cluster}})


def _loaded(store: Store) -> Cluster:
    """Load the state with the garbage collector off, and exclude a long queue from later collections."""
    gc.disable()
    try:
        cluster = store.load()
        if len(cluster.jobs) >= MANY_JOBS:
            gc.collect()
            gc.freeze()
        return cluster
    finally:
        gc.set_threshold(GARBAGE_LOOK)
        gc.enable()


def _remove_key_file(ring: KeyRing, inbox: Inbox, node: str) -> None:
    """Delete the key file of a removed node; if that fails, the key is still void, and the next start tries again."""
    try:
        ring.remove_file(node)
    except OSError as error:
        LOG.error("the key file of node %s, which was removed, cannot be deleted: %s", node, error)
    else:
        inbox.put(KeyFileDeleted(node=node))


def run(location: Location, config: Config) -> int:
    """Run the daemon; returns the exit status: 0 after a signal, 1 after a failure, which is logged."""
    os.umask(0o077)  # files for other users get their mode where they are created
    raise_descriptor_limit()
    try:
        own = prepare(location, config)
        if own.is_private:
            remove_left_over(Path(own.run_dir))
        # Root's lock file is in root's directory, so that root can trust the process id in it.
        with _only_one(location if os.geteuid() == ROOT_UID else own, own):
            if own.is_of_controller:
                become(config.controller.user)
            with _stores(own) as (store, blobs):
                asyncio.run(serve(own, config, store, blobs))
    except StoreFailed as error:
        LOG.critical("%s", error)
        return 1
    except GqError as error:
        return complain(error)
    except Exception:
        LOG.critical("gqd stops because of an error", exc_info=True)
        return 1
    return 0


@contextmanager
def _only_one(location: Location, own: Location) -> Iterator[None]:
    """Hold gqd's lock: unlike the database's, it works even if the state directory is recreated under a running gqd."""
    path = location.lock_path("gqd")
    lock = hold_lock(path, lambda pid: in_use(f"{own.state_dir}/gq.db", pid))
    try:
        yield
    finally:
        with suppress(PermissionError):  # a file of root in root's directory, after gqd changed its user
            Path(path).unlink(missing_ok=True)  # the sockets are gone, too
        os.close(lock)


@contextmanager
def _stores(location: Location) -> Iterator[tuple[SqliteStore, SqliteBlobStore]]:
    with ExitStack() as stack:
        store = SqliteStore(f"{location.state_dir}/gq.db")
        stack.callback(store.close)
        blobs = SqliteBlobStore(f"{location.state_dir}/blobs.db")
        stack.callback(blobs.close)
        yield store, blobs


@contextmanager
def _pid_file(path: Path) -> Iterator[None]:
    """Write the pid file atomically, and remove it at a clean end."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    fresh.write_text(f"{os.getpid()}\n")
    fresh.replace(path)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
