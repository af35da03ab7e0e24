"""What `gq doctor` says of munged, where users are who MUNGE says."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from gq.cli.doctor.identity_checks import vouching
from gq.cli.doctor.private_checks import Verdict
from gq.cli.doctor.system import Host
from gq.config.config import parse_config
from gq.connection.locate import Location
from tests.munge import own_munged
from tests.requires import needs_munge

KEY = "k" * 40


def host_with(table: str) -> Host:
    config = parse_config(table, "gq.toml")
    location = Location("gq.toml", "/nowhere", "/nowhere", is_private=False)
    return Host(
        location=location, config=config, config_error=None, name="h", is_controller=False, node=None, processes=()
    )


@needs_munge
@pytest.mark.parametrize(
    "table",
    [
        f'[client]\ncontroller = "tcp://h:1"\nserver_key = "{KEY}"\nmunge = true\nmunge_socket = ',
        '[controller]\nlisten_clients = "tcp://*:1"\nmunge = true\nmunge_socket = ',
    ],
    ids=["client", "controller"],
)
def test_the_doctor_says_whether_munged_answers_and_the_mend_is_to_start_it(table: str) -> None:
    with tempfile.TemporaryDirectory(prefix="gqt", dir="/tmp") as directory:
        Path(directory).chmod(0o711)
        with own_munged(Path(directory, "munge")) as munged:
            host = host_with(f'{table}"{munged.socket}"\n')
            assert [one.verdict for one in vouching(host)] == [Verdict.OK]
            munged.stop()
            [found] = vouching(host)
            assert (found.verdict, found.fix) == (Verdict.FAIL, "systemctl start munge")
            munged.start()
            assert [one.verdict for one in vouching(host)] == [Verdict.OK]


def test_the_doctor_asks_nothing_of_munge_where_it_is_not_used() -> None:
    assert list(vouching(host_with("[controller]\n"))) == []
