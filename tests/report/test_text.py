import pytest

from ddlsim.report.text import bytes_text, columns, comma_separated, markdown, seconds_text


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1 kB"),
        (999_700, "1 MB"),
        (123_456_789, "123 MB"),
        (9_800_000_000, "9.8 GB"),
        (5e15, "5000 TB"),
        (None, "-"),
    ],
)
def test_bytes_in_decimal_units(count, text):
    assert bytes_text(count) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.04, "0.04s"), (59.97, "1m00s"), (380, "6m20s"), (3599.9, "1h00m"), (3720, "1h02m"), (86400, "1d00h")],
)
def test_durations_in_their_two_largest_units(seconds, text):
    assert seconds_text(seconds) == text


def test_columns_line_up():
    assert columns(["a", "b"], [["xx", "1"], ["y", "22"]]) == "a    b\n--  --\nxx   1\ny   22"


def test_markdown_escapes_bars():
    assert markdown(["a"], [["x|y"]]) == "| a |\n| --- |\n| x\\|y |"


def test_csv_quotes_and_leaves_none_empty():
    assert comma_separated(["a", "b"], [["x,y", None]]) == 'a,b\n"x,y",'
