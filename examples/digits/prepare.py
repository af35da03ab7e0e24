"""Turn digits.csv.gz into training and test arrays: the preparation step of the demo.  Needs only a CPU.

Usage: ``prepare.py DIGITS_CSV_GZ OUTPUT_NPZ``.
"""

from __future__ import annotations

import gzip
import sys

import numpy as np

TEST_SHARE = 0.25
SEED = 7


def main(source: str, target: str) -> None:
    with gzip.open(source, "rt") as lines:
        table = np.loadtxt(lines, delimiter=",")
    np.random.default_rng(SEED).shuffle(table)
    images, digits = table[:, :-1] / 16.0, table[:, -1].astype(np.int64)
    tests = int(len(table) * TEST_SHARE)
    np.savez(
        target,
        train_images=images[tests:],
        train_digits=digits[tests:],
        test_images=images[:tests],
        test_digits=digits[:tests],
    )
    print(f"read {len(table)} images of {images.shape[1]} pixels; {len(table) - tests} to train on, {tests} to test on")


if __name__ == "__main__":
    main(*sys.argv[1:])
