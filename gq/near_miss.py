"""Misspelt words: the known word that was probably meant, for hints of errors.  Pure."""

from __future__ import annotations

from collections.abc import Iterable


def nearest(word: str, known: Iterable[str]) -> str:
    """Return the known word that `word` is a misspelling of, or '' (used for "did you mean" hints).

    A misspelling has at most one edit for each three letters (at least one); an edit inserts, deletes or replaces a
    letter, or swaps two neighbours.  Letter case and the dashes before an option do not count.  If several known words
    match, the closest wins, then the first.  Example: `nodse` means `nodes`; `gpus-each` means neither `gpus` nor
    `gpus-per-node`.
    """
    meant = word.lstrip("-").casefold()
    best, fewest = "", max(len(meant) // 3, 1) + 1
    for candidate in known:
        edits = _edit_distance(meant, candidate.lstrip("-").casefold(), fewest)
        if edits < fewest:
            best, fewest = candidate, edits
    return best


def suggestion(word: str, known: Iterable[str], otherwise: str = "") -> str:
    """Return the hint for an unknown word: the known word that is meant, else `otherwise`."""
    close = nearest(word, known)
    return f"did you mean `{close}`?" if close else otherwise


def none_of(word: str, known: Iterable[str]) -> str:
    """Return the message about an unknown word, with the known word that is meant after a semicolon."""
    words = list(known)
    close = nearest(word, words)
    return f"`{word[:40]}` is not one of {', '.join(words)}" + (f"; did you mean `{close}`?" if close else "")


def _edit_distance(word: str, other: str, limit: int) -> int:
    """Return the optimal string alignment distance (Damerau 1964, without overlapping edits), at most `limit`."""
    if abs(len(word) - len(other)) >= limit:
        return limit
    before: list[int] = []
    row = list(range(len(other) + 1))
    for i, letter in enumerate(word, 1):
        above, before, row = before, row, [i]
        for j, other_letter in enumerate(other, 1):
            edits = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (letter != other_letter))
            if i > 1 and j > 1 and letter == other[j - 2] and word[i - 2] == other_letter:
                edits = min(edits, above[j - 2] + 1)
            row.append(edits)
        if min(row) >= limit:
            return limit
    return row[-1]
