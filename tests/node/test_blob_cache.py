"""Blobs that are kept at hand for a start."""

from __future__ import annotations

from gqnode.daemon.blob_cache import BlobCache


def test_the_last_that_came_are_at_hand() -> None:
    recent = BlobCache(max_bytes=10)
    recent.put({"a": b"1234", "b": b"5678"})
    recent.put({"a": b"1234"})
    recent.put({"c": b"90"})
    assert [recent.get(digest) for digest in "abc"] == [b"1234", b"5678", b"90"]
    recent.put({"d": b"x"})
    assert [recent.get(digest) for digest in "abcd"] == [b"1234", None, b"90", b"x"]


def test_what_is_larger_than_all_that_may_be_kept_is_not_kept() -> None:
    recent = BlobCache(max_bytes=10)
    recent.put({"a": b"x" * 11})
    assert recent.get("a") is None
    recent.put({"b": b"y" * 10})
    assert recent.get("b") == b"y" * 10
