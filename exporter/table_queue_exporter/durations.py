"""Durations as Prometheus writes them: ``15s``, ``5m``, ``1h30m``, ``250ms``."""

import re

_UNITS = {
    "y": 365 * 86400.0,
    "w": 7 * 86400.0,
    "d": 86400.0,
    "h": 3600.0,
    "m": 60.0,
    "s": 1.0,
    "ms": 0.001,
}
_PATTERN = re.compile("".join(rf"(?:([0-9]+){unit})?" for unit in _UNITS))
_LONGEST = 292 * _UNITS["y"]
"""Prometheus's own limit: nanoseconds in 64 bits."""


def parse_duration(text: str) -> float:
    """Seconds in a duration such as ``1h30m``.

    Units from large to small, each at most once, as in Prometheus's own configuration; ``0``
    needs no unit. Raises ValueError with a message for the person who wrote it.
    """
    if text == "0":
        return 0.0
    match = _PATTERN.fullmatch(text)
    if not text or match is None:
        raise ValueError(
            f"{text!r} is not a duration: write a number and a unit, such as 15s, 5m or 1h30m"
        )
    amounts = zip(match.groups(), _UNITS.values(), strict=True)
    seconds = sum(float(amount) * unit for amount, unit in amounts if amount is not None)
    if seconds > _LONGEST:
        raise ValueError(f"{text[:20]!r} is too long: the longest duration is 292y")
    return seconds


def format_duration(seconds: float) -> str:
    """The shortest duration text for a number of seconds, rounded to a millisecond."""
    left = round(seconds * 1000)
    if left == 0:
        return "0s"
    parts = []
    for unit, size in _UNITS.items():
        amount, left = divmod(left, round(size * 1000))
        if amount:
            parts.append(f"{amount}{unit}")
    return "".join(parts)
