"""A release installs what requirements.txt locks: every version with its hashes, each within the ranges of gq."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
DIRECT = [*PYPROJECT["project"]["dependencies"], *PYPROJECT["build-system"]["requires"]]
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
HASH = re.compile(r"--hash=sha256:[0-9a-f]{64}")


def locked_lines() -> list[str]:
    """Each requirement with its hashes on one line, without comments."""
    text = (ROOT / "requirements.txt").read_text().replace("\\\n", " ")
    return [line for line in text.splitlines() if line.strip() and not line.startswith("#")]


def locked() -> list[Requirement]:
    return [Requirement(line.partition("--hash")[0].strip()) for line in locked_lines()]


def test_every_locked_requirement_is_one_version_with_hashes() -> None:
    lines = locked_lines()

    assert len(lines) > len(DIRECT)
    for line in lines:
        requirement, *hashes = line.split("--hash")
        assert [part.operator for part in Requirement(requirement.strip()).specifier] == ["=="], line
        assert len(HASH.findall(line)) == len(hashes) >= 1, line


@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize("wanted", DIRECT)
def test_the_lock_satisfies_every_range_of_pyproject_on_every_python(wanted: str, python: str) -> None:
    requirement = Requirement(wanted)

    versions = [
        next(iter(lock.specifier)).version
        for lock in locked()
        if canonicalize_name(lock.name) == canonicalize_name(requirement.name) and _applies(lock.marker, python)
    ]

    assert len(versions) == 1, f"hint: make lock; {wanted} is locked as {versions}"
    assert requirement.specifier.contains(versions[0]), f"hint: make lock; {wanted} is locked as {versions[0]}"


def _applies(marker: Marker | None, python: str) -> bool:
    return marker is None or marker.evaluate({"python_version": python, "python_full_version": f"{python}.0"})


@pytest.mark.parametrize("page", ["README.md", "man/gq-admin.7"])
def test_the_documented_installation_of_a_cluster_requires_hashes(page: str) -> None:
    text = (ROOT / page).read_text()

    assert "pip install --require-hashes -r requirements.txt" in text
    words = text.replace("\\e\n", " ").split()  # the manual's page continues the command on a second line
    assert '--no-deps --no-build-isolation "git+file://$PWD"' in " ".join(words)


# ── the audit of the lock ─────────────────────────────────────────────────────────────────────────────────────

SOUND = {"name": "rich", "version": "1.0", "vulns": []}
UNKNOWN = {"name": "rich", "skip_reason": "Dependency not found on PyPI"}
ADVISORY = {"id": "PYSEC-1", "fix_versions": ["1.1"]}
VULNERABLE = {"name": "rich", "version": "1.0", "vulns": [ADVISORY]}


@pytest.mark.parametrize(
    ("report", "stderr", "status", "said"),
    [
        ([SOUND], "", 0, "1 of 1 locked packages were audited"),
        ([VULNERABLE], "", 1, "rich 1.0: PYSEC-1, fixed in 1.1"),
        ([UNKNOWN], "", 0, "warning: the advisory service does not know, so not audited: rich"),
        ([UNKNOWN, VULNERABLE], "", 1, "rich 1.0: PYSEC-1, fixed in 1.1"),
        (None, "requests.exceptions.ProxyError: refused", 0, "warning: the advisory service cannot be reached"),
        (None, "ERROR: invalid requirement", 1, "error: pip-audit failed with status 1\nERROR: invalid requirement"),
    ],
    ids=["sound", "vulnerable", "unknown", "both", "unreachable", "failed"],
)
def test_the_audit_fails_for_a_vulnerability_and_warns_where_nothing_can_be_looked_up(
    tmp_path: Path, report: list[object] | None, stderr: str, status: int, said: str
) -> None:
    """A program that stands for pip-audit writes the report, as the network of the test machine decides nothing."""
    program = tmp_path / "pip-audit"
    program.write_text(f"#!{sys.executable}\nimport sys\nfrom pathlib import Path\n")
    with program.open("a") as file:
        if report is not None:
            path = '[word.partition("=")[2] for word in sys.argv if word.startswith("--output=")][0]'
            file.write(f"Path({path}).write_text({json.dumps({'dependencies': report})!r})\n")
        file.write(f"sys.exit({stderr or None!r})\n")
    program.chmod(0o700)

    ended = subprocess.run(
        [sys.executable, ROOT / ".ci/audit.py", program, "requirements.txt"], capture_output=True, text=True
    )

    assert (ended.returncode, said in ended.stdout + ended.stderr) == (status, True), ended
