"""Signal names as users write them: ``USR1``, ``SIGUSR1``, ``usr1``, ``10``.  Pure."""

from __future__ import annotations

from gq.near_miss import suggestion


def parse_signal(text: str) -> int:
    """Return the number of a signal; ``ValueError`` names the valid notations."""
    import signal  # its enums cost a millisecond, so that only senders import it

    word = text.strip().upper().removeprefix("SIG")
    known = {member.name.removeprefix("SIG"): int(member) for member in signal.Signals}
    if word in known:
        return known[word]
    if word.isascii() and word.isdecimal() and len(word) < 4 and 0 < int(word) <= signal.SIGRTMAX:
        return int(word)
    way_out = suggestion(word, known, "use a number or a name such as TERM, INT, USR1, KILL")
    raise ValueError(f"`{text}` is not a signal; {way_out}")


def signal_name(signum: int) -> str:
    """Return the name of a signal: ``10`` → ``USR1``."""
    import signal

    try:
        return signal.Signals(signum).name.removeprefix("SIG")
    except ValueError:
        return str(signum)
