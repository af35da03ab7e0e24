"""A site's own priority factors: found in installed packages, checked on load, and harmless when they fail."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path

import numpy as np
import pytest

from gq.errors import UsageError
from gqd.sched.priority.factor_check import sample
from gqd.shell.factors import GROUP, GuardedFactor, load_factors
from gqd.state.index.queue import Columns, Floats

PACKAGE = {
    "good": "import numpy as np\ndef factor(jobs):\n    return np.minimum(jobs.gpus / 8, 1.0)\n",
    "constant": "def factor(jobs):\n    return 1\n",
    "broken": "raise RuntimeError('no such table')\n",
    "nice": "import numpy as np\ndef factor(jobs):\n    return np.zeros(len(jobs.job_id))\n",
}


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package of a site, as pip would install it."""
    for name, code in PACKAGE.items():
        (tmp_path / f"site_factor_{name}.py").write_text(code)
    info = tmp_path / "site_factors-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: site-factors\nVersion: 1\n")
    lines = [f"{name} = site_factor_{name}:factor" for name in PACKAGE]
    (info / "entry_points.txt").write_text("\n".join([f"[{GROUP}]", *lines]))
    monkeypatch.syspath_prepend(str(tmp_path))


@pytest.mark.usefixtures("package")
def test_a_factor_with_a_weight_is_loaded_and_others_are_not() -> None:
    factors = load_factors({"good": 100.0})

    assert list(factors) == ["good"]
    jobs = sample(7)
    assert factors["good"](jobs).tolist() == np.minimum(jobs.gpus / 8, 1.0).tolist()
    assert {one.name for one in entry_points(group=GROUP)} >= PACKAGE.keys()


@pytest.mark.usefixtures("package")
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("goood", "no installed package provides this factor\nhint: did you mean `good`?"),
        ("constant", "site_factor_constant:factor: for 0 jobs it gives a int, not an array of 0 numbers"),
        ("broken", "cannot be loaded: RuntimeError: no such table"),
        ("nice", "`nice` is a factor of gq's own"),
    ],
)
def test_a_factor_that_cannot_be_used_is_refused_with_what_is_wrong(name: str, said: str) -> None:
    with pytest.raises(UsageError) as refused:
        load_factors({name: 1.0})

    assert said in str(refused.value)


def test_without_weights_no_package_is_looked_for() -> None:
    assert load_factors({}) == {}


def failing(jobs: Columns) -> Floats:
    raise KeyError("team")


def too_short(jobs: Columns) -> Floats:
    return np.zeros(1)


@pytest.mark.parametrize("factor", [failing, too_short])
def test_a_factor_that_fails_on_a_real_queue_counts_as_nothing_and_is_named_once(
    factor: Callable[[Columns], Floats], caplog: pytest.LogCaptureFixture
) -> None:
    guarded = GuardedFactor("mine", factor)

    assert guarded(sample(7)).tolist() == guarded(sample(7)).tolist() == [0.0] * 7
    assert [record.getMessage().startswith("the priority factor mine") for record in caplog.records] == [True]
