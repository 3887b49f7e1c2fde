"""distlib.book: what it publishes in a notebook, and that it is silent in plain Python."""

import re
import subprocess
import sys

import numpy as np
import pytest
from matplotlib import pyplot as plt

from distlib import book


@pytest.fixture
def published(monkeypatch):
    """What is displayed, as (data, metadata)."""
    shown = []
    monkeypatch.setattr(book, "_publish", lambda data, metadata=None: shown.append((data, metadata)))
    return shown


@pytest.fixture
def fig():
    book.use_style()
    fig, ax = plt.subplots()
    yield fig, ax
    plt.close(fig)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1, "1"), (2**40, "1099511627776"), (np.int64(7), "7"), (1.5, "1.5"), (np.float64(0.1), "0.1"),
        (np.array(2.5), "2.5"), (1 / 3, "0.333333333333"), (17179869184.0, "17179869184.0"), ("NVLink", "'NVLink'"),
        (True, "True"), (np.bool_(False), "False"), (-0.25, "-0.25"),
    ],
)  # fmt: skip
def test_record_writes_plain_text_that_the_prose_can_format(published, value, text):
    book.record("name", value)
    assert published == [
        (
            {"application/papermill.record/text/plain": text},
            {"scrapbook": {"name": "name", "mime_prefix": "application/papermill.record/"}},
        )
    ]


def test_a_fit_is_recorded_to_the_digits_that_it_has(published):
    book.record("alpha", 12.3456789, digits=3)
    assert published[0][0]["application/papermill.record/text/plain"] == "12.3"


@pytest.mark.parametrize("value", [np.nan, np.inf, [1, 2], np.ones(3), 1j, None])
def test_what_is_no_number_is_not_recorded(published, value):
    with pytest.raises((ValueError, TypeError)):
        book.record("name", value)
    assert published == []


def test_show_displays_the_same_svg_each_time_and_closes_the_figure(published):
    def draw():
        book.use_style()
        fig, ax = plt.subplots()
        ax.plot([1, 2, 3], [1, 4, 9], label="ring")
        ax.legend()
        book.show(fig)
        return fig

    first, second = draw(), draw()
    assert not plt.fignum_exists(first.number) and not plt.fignum_exists(second.number)
    (record, _), (picture, _), (record_again, _), (picture_again, _) = published
    assert picture == picture_again and record == record_again
    assert re.search(r"(?s)<svg .*</svg>", picture["image/svg+xml"]) and "<dc:date>" not in picture["image/svg+xml"]


DRAWN = {
    "a line": lambda ax, k: ax.plot([1, 2], [1, 2 + k]),
    "points": lambda ax, k: ax.scatter([1, 2], [1, 2 + k]),
    "bars": lambda ax, k: ax.bar([1, 2], [1, 2 + k]),
    "horizontal bars": lambda ax, k: ax.barh([1, 2], [1, 2 + k], left=[0, 1]),
    "a band": lambda ax, k: ax.fill_between([1, 2], [1, 2 + k], [3, 4]),
    "error bars": lambda ax, k: ax.errorbar([1, 2], [1, 2], yerr=[0.1, 0.2 + k]),
    "a limit": lambda ax, k: ax.axhline(3 + k),
    "an image": lambda ax, k: ax.imshow([[1, 2], [3, 4 + k]]),
    "contours": lambda ax, k: ax.contour([[1, 2], [3, 4 + k]], levels=[1.5, 2.5 + k]),
    "a mesh": lambda ax, k: ax.pcolormesh([[1, 2], [3, 4 + k]]),
    "a step": lambda ax, k: ax.stairs([1, 2 + k]),
    "many numbers": lambda ax, k: ax.plot(np.arange(1000), np.arange(1000) ** 2 * (1 + k)),
    "a text": lambda ax, k: ax.text(0.5, 0.5, f"text {k}"),
    "an arrow's text": lambda ax, k: ax.annotate("here", (0.5 + k, 0.5), (0.1, 0.1), arrowprops={"arrowstyle": "->"}),
    "a label": lambda ax, k: ax.set_xlabel(f"n {k}"),
    "a legend": lambda ax, k: (ax.plot([1], [1], label=f"ring {k}"), ax.legend()),
    "a limit of an axis": lambda ax, k: ax.set_ylim(0, 1 + k),
    "a scale": lambda ax, k: ax.set_yscale("log" if k else "linear"),
    "written ticks": lambda ax, k: ax.set_xticks([1, 2], ["one", f"two {k}"]),
    "a colour bar": lambda ax, k: ax.figure.colorbar(ax.imshow([[1, 2 + k]]), label="s"),
    "a second axis": lambda ax, k: ax.twinx().plot([1, 2], [1, 2 + k]),
    "a figure's text": lambda ax, k: ax.figure.text(0, 0, f"note {k}"),
}


@pytest.mark.parametrize("draw", DRAWN.values(), ids=DRAWN.keys())
def test_the_fingerprint_sees(draw, fig):
    def fingerprint(k):
        fig[0].clear()
        draw(fig[0].subplots(), k)
        return book.fingerprint(fig[0])

    assert fingerprint(0) == fingerprint(0)
    assert fingerprint(0) != fingerprint(0.01)


def test_the_fingerprint_ignores_fonts_and_the_last_digits(fig):
    def fingerprint(scale, size):
        fig[0].clear()
        ax = fig[0].subplots()
        ax.set_xlabel("n (byte)", fontsize=size)
        ax.plot([1, 2, 3], np.array([1.23456, 1e-17 * scale, 3]) * scale)
        return book.fingerprint(fig[0])

    assert fingerprint(1, 10) == fingerprint(1 + 1e-9, 14)


def test_a_table_has_headings_numbers_to_the_right_and_text_escaped(published):
    book.table({"link <x>": ["NVLink", "a & b"], "β (GB/s)": [450.0, 1 / 3], "n": [1024, None]}, {"β (GB/s)": ".1f"})
    data = published[0][0]
    assert "<th scope=col>link &lt;x&gt;</th>" in data["text/html"]
    assert '<td class="number">450.0</td><td class="number">1024</td>' in data["text/html"]
    assert "<td>a &amp; b</td>" in data["text/html"]
    lines = data["text/plain"].split("\n")
    assert lines == ["link <x>  β (GB/s)     n", "NVLink       450.0  1024", "a & b          0.3     –"]


def test_a_table_refuses_uneven_columns_and_formats_of_no_column(published):
    with pytest.raises(ValueError, match="shorter|longer"):
        book.table({"a": [1, 2], "b": [1]})
    with pytest.raises(ValueError, match="formats name no column: c"):
        book.table({"a": [1]}, {"c": ".1f"})


def test_colours_stand_out_from_white_and_from_each_other():
    def linear(colour):
        channels = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
        return np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)

    assert set(book.COLOUR.values()) <= {
        book.BLUE, book.VERMILLION, book.GREEN, book.PURPLE, book.AMBER, book.SKY, book.GREY, book.INK
    }  # fmt: skip
    for colour in book.COLOUR.values():
        assert 1.05 / (linear(colour) @ [0.2126, 0.7152, 0.0722] + 0.05) >= 3


def test_in_a_notebook_numbers_are_shown_as_numbers_to_six_digits(monkeypatch):
    from IPython.core.formatters import DisplayFormatter

    formatter = DisplayFormatter()
    shell = type("Shell", (), {"display_formatter": formatter})()
    monkeypatch.setattr("IPython.get_ipython", lambda: shell)
    book.use_style()
    value = (1 / 3, np.float64(2 / 3), np.float32(0.5), np.int64(7), np.bool_(True), [np.float64(1e-9)])
    assert formatter.format(value)[0]["text/plain"] == "(0.333333, 0.666667, 0.5, 7, True, [1e-09])"


def test_in_plain_python_nothing_is_displayed_and_nothing_fails():
    program = (
        "from distlib.book import record, show, table, use_style; import matplotlib; matplotlib.use('agg');"
        "import matplotlib.pyplot as plt; use_style(); record('x', 1.5); table({'a': [1]}); show(plt.figure());"
        "import sys; assert 'IPython' not in sys.modules"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, encoding="utf-8")
    assert (run.returncode, run.stdout, run.stderr) == (0, "", "")
