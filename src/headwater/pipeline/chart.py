"""Rollups as a picture: one panel for each figure, one line for each queue or group, as SVG alone or in a page.

Written by hand because it is little: no script, no font, nothing fetched from anywhere, so that the file can be mailed,
kept and opened in ten years.
"""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from typing import NamedTuple

from headwater.clock import SECOND
from headwater.errors import SourceUnfit
from headwater.model.rollup import RESOLUTIONS, Rollup, add_up, quantile
from headwater.pipeline.manifest import replace_file

WIDTH, PANEL_HEIGHT, GAP = 960, 150, 56
LEFT, RIGHT, TOP = 76, 16, 64
SERIES_MAX = 8
COLOURS = ("#1f6feb", "#d1242f", "#1a7f37", "#9a6700", "#8250df", "#bf3989", "#57606a", "#0a7ea4")
TICKS = 4
FORMATS = (".svg", ".html")

Series = dict[str, list[tuple[int, float]]]


class Panel(NamedTuple):
    """One figure: its title, its unit, and its value in a row; None leaves the row out."""

    title: str
    unit: str
    value: Callable[[Rollup], float | None]


def panels(resolution: str) -> list[Panel]:
    """What is drawn. Rates are per second over the whole bucket."""
    seconds = RESOLUTIONS[resolution] / SECOND
    return [
        Panel("pushed", "messages/s", lambda row: None if row.group else row.pushed / seconds),
        Panel("completed", "messages/s", lambda row: row.completed / seconds if row.group else None),
        Panel("latency, 95 % below", "ms", lambda row: quantile(row.latency_bins, 0.95) if row.group else None),
        Panel("lag, at most", "messages", lambda row: float(row.lag_max) if row.group else None),
        Panel("retries and dead letters", "messages", lambda row: row.retried + row.buried if row.group else None),
    ]


def write_chart(path: Path, rows: Sequence[Rollup], resolution: str, by_queue: bool = False) -> None:
    """Write a chart; the ending says whether it is a picture (.svg) or a page (.html)."""
    check_chart(path)
    drawn = draw(rows, resolution, by_queue)
    text = drawn if path.suffix == ".svg" else page(drawn, rows, resolution)
    replace_file(path, text.encode())


def check_chart(path: Path) -> Path:
    """The path, when a chart can be written under this name."""
    if path.suffix not in FORMATS:
        raise SourceUnfit(f"a chart is a file that ends with {' or '.join(FORMATS)}; got {path}")
    return path


def draw(rows: Sequence[Rollup], resolution: str, by_queue: bool = False) -> str:
    """The chart as SVG: all queues in the same panels, or panels of its own for each, over the same time."""
    # A queue's rows by type are one line here.
    rows = add_up(_without_type(row) for row in rows)
    queues = sorted({row.queue for row in rows}) if by_queue else []
    drawn = [(f"{queue}, by {resolution}", [row for row in rows if row.queue == queue]) for queue in queues]
    drawn = drawn or [(f"Headwater, by {resolution}", rows)]
    each = TOP + len(panels(resolution)) * (PANEL_HEIGHT + GAP)
    height = each * len(drawn)
    span = _span(rows, resolution)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        'font-family="sans-serif" font-size="12" role="img" aria-label="Headwater rollups">',
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
    ]
    for place, (title, some) in enumerate(drawn):
        inner = _picture(title, some, span, resolution)
        parts.extend([f'<g transform="translate(0 {place * each})">', *inner, "</g>"])
    return "\n".join([*parts, "</svg>", ""])


def _picture(title: str, rows: Sequence[Rollup], span: tuple[int, int], resolution: str) -> list[str]:
    """One title and its panels."""
    parts = [
        f'<text x="{LEFT}" y="28" font-size="18">{escape(title)}</text>',
        f'<text x="{LEFT}" y="46" fill="#57606a">{_when(span[0], True)} to {_when(span[1], True)} UTC</text>',
    ]
    for number, panel in enumerate(panels(resolution)):
        parts.extend(_panel(panel, _series(panel, rows), span, TOP + number * (PANEL_HEIGHT + GAP) + 24))
    return parts


def page(drawn: str, rows: Sequence[Rollup], resolution: str) -> str:
    """The chart with the figures below it, as one page."""
    heads = (
        "time (UTC)",
        "queue",
        "group",
        "type",
        "pushed",
        "late",
        "completed",
        "p50 ms",
        "p95 ms",
        "lag",
        "retried",
    )
    head = "".join(f"<th>{name}</th>" for name in (*heads, "dead letters"))
    body = "\n".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in _cells(row))}</tr>" for row in rows)
    style = "body{font-family:sans-serif;margin:2em}td,th{padding:2px 10px;text-align:right}th{border-bottom:1px solid}"
    return (
        f'<!doctype html>\n<html lang="en"><meta charset="utf-8"><title>Headwater, by {resolution}</title>'
        f"<style>{style}</style>\n{drawn}<table><tr>{head}</tr>\n{body}</table></html>\n"
    )


def _cells(row: Rollup) -> list[str]:
    quantiles = [quantile(row.latency_bins, share) for share in (0.5, 0.95)]
    texts = [_when(row.bucket, True), row.queue, row.group, row.type, *map(str, (row.pushed, row.late, row.completed))]
    shown = ["" if found is None else f"{found:,.0f}" for found in quantiles]
    return [*texts, *shown, *map(str, (row.lag_max, row.retried, row.buried))]


def _without_type(row: Rollup) -> Rollup:
    from msgspec.structs import replace

    return replace(row, type="")


def _span(rows: Sequence[Rollup], resolution: str) -> tuple[int, int]:
    """The time from the first bucket to the end of the last."""
    if not rows:
        return 0, RESOLUTIONS[resolution]
    return min(row.bucket for row in rows), max(row.bucket for row in rows) + RESOLUTIONS[resolution]


def _series(panel: Panel, rows: Sequence[Rollup]) -> Series:
    """The points of a panel by name; of too many lines those with the greatest values are drawn."""
    found: Series = {}
    for row in sorted(rows, key=lambda row: row.bucket):
        value = panel.value(row)
        if value is not None:
            name = f"{row.queue} · {row.group}" if row.group else row.queue
            found.setdefault(name, []).append((row.bucket, value))
    order = sorted(found, key=lambda name: -max(value for _, value in found[name]))
    return {name: found[name] for name in order[:SERIES_MAX]}


def _panel(panel: Panel, series: Series, span: tuple[int, int], top: int) -> list[str]:
    highest = max((value for points in series.values() for _, value in points), default=0) or 1
    bottom = top + PANEL_HEIGHT
    parts = [f'<text x="{LEFT}" y="{top - 8}"><tspan font-weight="bold">{panel.title}</tspan> ({panel.unit})</text>']
    for tick in range(TICKS + 1):
        y = bottom - PANEL_HEIGHT * tick / TICKS
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:g}" y2="{y:g}" stroke="#d8dee4"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y + 4:g}" text-anchor="end">{_short(highest * tick / TICKS)}</text>')
        x = LEFT + (WIDTH - LEFT - RIGHT) * tick / TICKS
        time = span[0] + (span[1] - span[0]) * tick // TICKS
        anchor = "start" if tick == 0 else "end" if tick == TICKS else "middle"
        parts.append(f'<text x="{x:g}" y="{bottom + 16}" text-anchor="{anchor}" fill="#57606a">{_when(time)}</text>')
    for points, colour in zip(series.values(), COLOURS, strict=False):
        parts.extend(_line(points, span, highest, top, colour))
    return [*parts, *_legend(series, top)]


def _line(points: list[tuple[int, float]], span: tuple[int, int], highest: float, top: int, colour: str) -> list[str]:
    places = []
    for bucket, value in points:
        x = LEFT + (WIDTH - LEFT - RIGHT) * (bucket - span[0]) / (span[1] - span[0])
        places.append((x, top + PANEL_HEIGHT * (1 - value / highest)))
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    dots = [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.5" fill="{colour}"/>' for x, y in places]
    return [f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.5"/>', *dots]


def _legend(series: Series, top: int) -> list[str]:
    parts = []
    for place, (name, colour) in enumerate(zip(series, COLOURS, strict=False)):
        x = WIDTH - RIGHT - 170 * (min(len(series), 4) - place % 4)
        y = top - 8 - 14 * (place // 4)
        parts.append(f'<text x="{x}" y="{y}" fill="{colour}">● {escape(name[:24])}</text>')
    return parts


def _short(value: float) -> str:
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value:.3g}"


def _when(time: int, whole: bool = False) -> str:
    at = datetime.fromtimestamp(time / SECOND, UTC)
    return at.strftime("%Y-%m-%d %H:%M" if whole else "%d %b %H:%M")
