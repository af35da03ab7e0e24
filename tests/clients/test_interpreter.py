"""Which modules a child interpreter of gq can import."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import gq
from gq.host.interpreter import isolated_python

SOURCE = Path(gq.__file__).parent.parent


def test_a_module_in_the_working_directory_or_in_pythonpath_is_not_imported(tmp_path: Path) -> None:
    (tmp_path / "planted.py").write_text("print('ran')")
    environ = {**os.environ, "PYTHONPATH": str(tmp_path)}
    command = [*isolated_python(environ), "-c", "import planted"]

    done = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True)

    assert done.stdout == ""
    assert "No module named 'planted'" in done.stderr


def test_a_gq_that_pythonpath_names_is_found_but_the_working_directory_is_not_searched(tmp_path: Path) -> None:
    (tmp_path / "planted.py").write_text("print('ran')")
    environ = {"PYTHONPATH": str(SOURCE)}
    found = subprocess.run(
        [*isolated_python(environ), "-S", "-c", "import gq.version; import planted"],
        cwd=tmp_path,
        env=environ,
        capture_output=True,
        text=True,
    )

    assert isolated_python(environ) == (sys.executable, "-P")
    assert found.stdout == ""
    assert "No module named 'planted'" in found.stderr
