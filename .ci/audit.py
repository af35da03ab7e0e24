"""Look up the locked dependencies in the advisory database of PyPI: `audit.py PIP_AUDIT REQUIREMENTS`.

A known vulnerability ends it with status 1, and so does a failure of pip-audit itself.  An advisory service that cannot
be reached, or that does not know the packages, is a warning: nothing can be said then, and CI goes on.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

UNREACHABLE = ("requests.exceptions.", "ould not connect", "connection timed out")
"""Signs in pip-audit's own words that the service did not answer."""


def main(pip_audit: str, requirements: str) -> int:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "report.json")
        ended = subprocess.run(
            [
                pip_audit,
                "--disable-pip",
                "--require-hashes",
                "--progress-spinner=off",
                "--format=json",
                f"--output={path}",
                f"--requirement={requirements}",
            ],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
        report = path.read_text() if path.exists() else ""
    if report:
        return judge(json.loads(report)["dependencies"])
    if any(sign in ended.stderr for sign in UNREACHABLE):
        print("warning: the advisory service cannot be reached; nothing was audited", file=sys.stderr)
        return 0
    print(f"error: pip-audit failed with status {ended.returncode}\n{ended.stderr}", file=sys.stderr)
    return 1


def judge(dependencies: list[dict]) -> int:
    """Print each vulnerability and each package that was not audited; the exit status."""
    vulnerable = [found for found in dependencies if found.get("vulns")]
    skipped = [found["name"] for found in dependencies if "skip_reason" in found]
    if skipped:
        print(f"warning: the advisory service does not know, so not audited: {', '.join(skipped)}", file=sys.stderr)
    for found in vulnerable:
        for advisory in found["vulns"]:
            fixed = ", ".join(advisory["fix_versions"]) or "no version"
            print(f"{found['name']} {found['version']}: {advisory['id']}, fixed in {fixed}")
    if vulnerable:
        print("error: a locked dependency has a known vulnerability", file=sys.stderr)
        print("hint: make lock, or raise the range in pyproject.toml", file=sys.stderr)
    elif audited := len(dependencies) - len(skipped):
        print(f"{audited} of {len(dependencies)} locked packages were audited: no known vulnerability")
    return 1 if vulnerable else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
