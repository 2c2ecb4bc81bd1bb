import pytest

from table_queue_exporter.durations import format_duration, parse_duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("15s", 15),
        ("5m", 300),
        ("1h30m", 5400),
        ("250ms", 0.25),
        ("1d", 86400),
        ("2w", 14 * 86400),
        ("1y", 365 * 86400),
        ("1h0m5s", 3605),
        ("0", 0),
        ("0s", 0),
    ],
)
def test_durations_are_those_of_prometheus(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    "text",
    ["", "5", "s", "1.5s", "-5s", "5 s", " 5s", "5S", "5min", "1m1h", "5s5s", "1e3s", "٥s", "inf"],
)
def test_anything_else_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration: write a number and a unit"):
        parse_duration(text)


@pytest.mark.parametrize("text", ["293y", "9" * 400 + "s", "9" * 5000 + "ms"])
def test_absurd_lengths_are_refused_in_a_short_line(text: str) -> None:
    with pytest.raises(ValueError, match="too long: the longest duration is 292y") as caught:
        parse_duration(text)
    assert len(str(caught.value)) < 100


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0s"), (0.2, "200ms"), (15, "15s"), (90, "1m30s"), (3600, "1h"), (31536000, "1y")],
)
def test_shown_as_they_are_written(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


def test_what_is_shown_can_be_written() -> None:
    for milliseconds in (1, 999, 1001, 61_001, 86_399_999, 123_456_789_012):
        assert parse_duration(format_duration(milliseconds / 1000)) == milliseconds / 1000
