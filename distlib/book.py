"""What a chapter needs of its notebook: `record` a number for the prose, `show` a figure, `table`, one style.

Each also works in plain Python, where nothing is displayed. Nothing here needs the tools that build the book, so a
downloaded chapter runs wherever NumPy and Matplotlib do.
"""

import html
import io
import sys
import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

BLUE, VERMILLION, GREEN, PURPLE = "#0072B2", "#D1530A", "#00805E", "#A0468C"
AMBER, SKY, GREY, INK = "#A87000", "#3596D0", "#767676", "#222222"

#: A thing keeps its colour through the book. Told apart by colour-blind readers; contrast with white 3:1 or more.
COLOUR = {
    # where a number comes from
    "measured": INK, "model": VERMILLION, "limit": GREY,
    # collectives
    "ring": BLUE, "tree": GREEN, "hierarchical": PURPLE, "in_network": SKY, "halving_doubling": AMBER,
    # links
    "nvlink": GREEN, "infiniband": BLUE, "roce": SKY, "efa": AMBER, "pcie": PURPLE, "ethernet": GREY,
    # the terms of a step, and what fault tolerance adds
    "compute": GREEN, "comm": BLUE, "sync": AMBER, "overlap": SKY, "checkpoint": PURPLE, "lost": VERMILLION,
    # the passes of a pipeline
    "forward": SKY, "backward": BLUE, "weight": GREEN,
}  # fmt: skip

_RECORD = "application/papermill.record/"


def _publish(data: dict[str, str], metadata: dict[str, Any] | None = None) -> None:
    """Display a bundle of media types if this runs in a notebook."""
    ipython = sys.modules.get("IPython")
    if ipython is not None and ipython.get_ipython() is not None:
        ipython.display.display(data, raw=True, metadata=metadata or {})


def _publish_record(name: str, text: str) -> None:
    _publish({_RECORD + "text/plain": text}, {"scrapbook": {"name": name, "mime_prefix": _RECORD}})


def record(name: str, value: Any, digits: int = 12) -> None:
    """Record a number or a string, so that the prose can show it: {glue:text}`name:.2f`.

    A float is kept to `digits` significant digits: those that survive another processor; a fit has fewer.
    """
    if isinstance(value, str | bool | np.bool_):
        text = repr(value if isinstance(value, str) else bool(value))
    elif np.ndim(value) or not np.isrealobj(value) or not np.isfinite(value):
        raise ValueError(f"record {name!r}: value must be one finite number or a string, got {value!r}")
    elif isinstance(value, int | np.integer):
        text = repr(int(value))
    else:
        text = repr(float(f"{float(value):.{digits}g}"))
    _publish_record(name, text)


def use_style() -> None:
    """Set the look of the book's figures, and of the numbers that a cell ends in: six significant digits."""
    import matplotlib as mpl

    mpl.rcParams.update(
        {
            "figure.figsize": (6.0, 3.4), "figure.constrained_layout.use": True, "figure.max_open_warning": 0,
            "svg.hashsalt": "distlib", "svg.fonttype": "path", "savefig.transparent": False,
            "font.family": "DejaVu Sans", "font.size": 12, "axes.labelsize": 12, "legend.fontsize": 11,
            "xtick.labelsize": 11, "ytick.labelsize": 11, "mathtext.fontset": "dejavusans",
            "axes.prop_cycle": mpl.rcsetup.cycler("color", [BLUE, VERMILLION, GREEN, PURPLE, AMBER, SKY, GREY, INK]),
            "axes.spines.top": False, "axes.spines.right": False, "axes.edgecolor": INK, "axes.labelcolor": INK,
            "axes.grid": True, "axes.axisbelow": True, "grid.color": "#E3E3E3", "grid.linewidth": 0.8,
            "lines.linewidth": 2.0, "lines.markersize": 5.5, "legend.frameon": False, "image.cmap": "cividis",
        }
    )
    np.set_printoptions(precision=6, suppress=False, linewidth=72)
    ipython = sys.modules.get("IPython")
    if ipython is not None and (shell := ipython.get_ipython()) is not None:
        text = shell.display_formatter.formatters["text/plain"]
        for number in (float, np.float64, np.float32):
            text.for_type(number, lambda x, p, cycle: p.text(f"{x:.6g}"))
        for whole in (np.int64, np.int32, np.bool_):
            text.for_type(whole, lambda x, p, cycle: p.text(str(x)))


def show(fig: Any) -> None:
    """Display a figure as SVG, the same bytes each time, record the fingerprint of what it draws, and close it."""
    import matplotlib.pyplot as plt

    drawn = fingerprint(fig)
    _publish_record(f"figure-{zlib.crc32(drawn.encode()):08x}", drawn)
    picture = io.StringIO()
    fig.savefig(picture, format="svg", metadata={"Date": None})
    _publish({"image/svg+xml": picture.getvalue(), "text/plain": "(figure)"})
    plt.close(fig)


def fingerprint(fig: Any) -> str:
    """What a figure draws, one line an artist, numbers to six significant digits: the same whatever the fonts."""
    lines = [f"text {text.get_text()!r}" for text in fig.texts]
    for ax in fig.axes:
        lines.append(f"axes {ax.get_title()!r}")
        for axis in (ax.xaxis, ax.yaxis):
            name, scale, limits = axis.get_label_text(), axis.get_scale(), _digits(axis.get_view_interval())
            lines.append(f" {axis.axis_name} {name!r} {scale}{limits}{_written_ticks(axis)}")
        lines += [f" {drawn}" for artist in ax.get_children() if (drawn := _artist(artist, ax))]
    return "\n".join(lines)


def _written_ticks(axis: Any) -> str:
    """Tick labels that the chapter chose itself: names, or places it fixed."""
    from matplotlib.category import StrCategoryLocator
    from matplotlib.ticker import FixedLocator

    locator = axis.get_major_locator()
    chosen = isinstance(locator, FixedLocator | StrCategoryLocator)
    return f" ticks {axis.get_major_formatter().format_ticks(locator())!r}" if chosen else ""


def _artist(artist: Any, ax: Any) -> str:
    """One artist as one line; an empty string for what a chapter does not draw itself (spines, axes, background)."""
    from matplotlib import collections, image, legend, lines, patches, text

    if not artist.get_visible() or artist is ax.patch:
        return ""
    label = artist.get_label()
    name = "" if str(label).startswith("_") else f" {label!r}"
    match artist:
        case lines.Line2D():
            return f"line{name}{_digits(artist.get_xdata())}{_digits(artist.get_ydata())}"
        case collections.PathCollection():
            return f"points{name}{_digits(artist.get_offsets())}{_digits(artist.get_sizes())}"
        case collections.Collection():
            shapes = [path.vertices for path in artist.get_paths()]
            return f"shapes{name}{_digits(np.concatenate(shapes) if shapes else [])}{_digits(artist.get_array())}"
        case patches.FancyArrowPatch():
            return ""  # follows its annotation
        case patches.Patch() if artist in ax.patches:
            return f"patch{name}{_digits(artist.get_patch_transform().transform(artist.get_path().vertices))}"
        case image.AxesImage():
            return f"image{name}{_digits(artist.get_array())}{_digits(artist.get_extent())}"
        case legend.Legend():
            return f"legend {[entry.get_text() for entry in artist.get_texts()]!r}"
        case text.Text() if artist.get_text() and artist in ax.texts:
            at = artist.xy if isinstance(artist, text.Annotation) else artist.get_position()
            return f"text {artist.get_text()!r}{_digits(at)}"
    return ""


def _digits(values: Any) -> str:
    """Numbers to six significant digits, noise below 1e-12 of the largest as 0; a long list as its check sum."""
    if values is None:
        return ""
    array = np.ma.filled(np.ma.asarray(values).ravel())
    if array.dtype.kind not in "biuf":
        return f" [{' '.join(map(str, array))}]"
    numbers = array.astype(float)
    size = np.abs(numbers, where=np.isfinite(numbers), out=np.zeros_like(numbers))
    text = " ".join(f"{x:.6g}" for x in np.where(size < 1e-12 * size.max(initial=0), 0.0, numbers))
    return f" [{text}]" if len(numbers) <= 200 else f" [{len(numbers)} numbers, sum {zlib.crc32(text.encode()):08x}]"


def table(columns: Mapping[str, Iterable[Any]], formats: Mapping[str, str] | None = None) -> None:
    """Display columns, heading → values; `formats` gives a column's format, as in {"busbw (GB/s)": ".1f"}.

    A number has four significant digits unless its column's format says otherwise.
    """
    formats = formats or {}
    if unknown := set(formats) - set(columns):
        raise ValueError(f"formats name no column: {', '.join(sorted(unknown))}")
    values = {heading: list(column) for heading, column in columns.items()}
    cells = {heading: [_cell(value, formats.get(heading)) for value in column] for heading, column in values.items()}
    rows = list(zip(*cells.values(), strict=True))
    right = [
        bool(column) and all(isinstance(value, int | float | np.number) or value is None for value in column)
        for column in values.values()
    ]
    _publish({"text/html": _html(list(cells), rows, right), "text/plain": _plain(list(cells), rows, right)})


def _cell(value: Any, spec: str | None) -> str:
    if value is None:
        return "–"
    if isinstance(value, str):
        return value
    if spec is None:
        spec = "" if isinstance(value, int | np.integer | np.bool_) else ".4g"
    return format(value, spec)


def _html(headings: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[bool]) -> str:
    def line(tag: str, row: Sequence[str]) -> str:
        kinds = (' class="number"' if is_number else "" for is_number in right)
        cells = (f"<{tag}{kind}>{html.escape(cell)}</{tag[:2]}>" for kind, cell in zip(kinds, row, strict=True))
        return f"<tr>{''.join(cells)}</tr>"

    return (
        '<div class="book-table" role="region" tabindex="0" aria-label="table"><table class="table">\n'
        f"<thead>{line('th scope=col', headings)}</thead>\n"
        f"<tbody>\n{chr(10).join(line('td', row) for row in rows)}\n</tbody></table></div>"
    )


def _plain(headings: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[bool]) -> str:
    grid = [headings, *rows]
    widths = [max(map(len, column)) for column in zip(*grid, strict=True)]
    return "\n".join(
        "  ".join(c.rjust(w) if r else c.ljust(w) for c, w, r in zip(row, widths, right, strict=True)).rstrip()
        for row in grid
    )
