"""`GET /` in a browser: queues, groups, lag and rates on one plain page that looks again by itself. No script."""

import base64
import hashlib
from collections.abc import Iterable, Sequence
from html import escape

from headwater.clock import SECOND
from headwater.doors.listing import group_pages, queue_pages
from headwater.doors.metrics import reports, work_for
from headwater.doors.site import Site
from headwater.doors.wire import Request, Response
from headwater.model.principal import Principal, Scope
from headwater.stores.questions import FindLastLsn, GroupStatus, QueueStatus

REFRESH_SECONDS = 2
ROWS_MAX = 200
STYLE = (
    "body{font:15px/1.4 system-ui,sans-serif;margin:2rem;max-width:70rem}"
    "table{border-collapse:collapse;margin:0 0 2rem}"
    "td,th{padding:.25rem .8rem;border-bottom:1px solid #ccc;text-align:right}"
    "td:first-child,th:first-child,td.name,th.name{text-align:left}"
    "h1{font-size:1.3rem}h2{font-size:1.05rem}p{color:#555}"
)
_style_hash = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
HEADERS = (
    (
        "content-security-policy",
        f"default-src 'none'; style-src 'sha256-{_style_hash}'; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'",
    ),
    ("x-frame-options", "DENY"),
    ("referrer-policy", "no-referrer"),
    ("refresh", str(REFRESH_SECONDS)),
)


async def status_page(site: Site, request: Request) -> Response:
    """The page."""
    principal = request.principal
    queues = [status async for page in queue_pages(site, principal, limit=ROWS_MAX + 1) for status in page]
    groups = [status async for page in group_pages(site, principal, limit=ROWS_MAX + 1) for status in page]
    top = await _top(site, principal)
    body = "".join((top, _rates(site, principal), _queue_table(queues), _group_table(groups, site.clock.now())))
    page = (
        f"<!doctype html><html lang=en><meta charset=utf-8><title>Headwater</title><style>{STYLE}</style>"
        f"<body>{body}</body></html>"
    )
    return Response(content_type="text/html; charset=utf-8", body=page.encode(), headers=HEADERS)


async def _top(site: Site, principal: Principal) -> str:
    """What the whole server does is for its operator to see."""
    facts = [escape(site.queues.traits.engine)]
    if principal.may(Scope.OPERATOR):
        numbers = [report.numbers for report in reports(site)]
        facts += [
            f"{sum(number['connections'] for number in numbers):,.0f} connections",
            f"{sum(number['waiting_pops'] for number in numbers):,.0f} pops wait",
            f"LSN {await site.queues.ask(FindLastLsn()):,}",
        ]
    facts.append(f"looks again every {REFRESH_SECONDS} s")
    return f"<h1>Headwater {escape(site.version)}</h1><p>{' · '.join(facts)}</p>"


def _rates(site: Site, principal: Principal) -> str:
    counters, rates = work_for(site, principal)
    if not counters:
        return ""
    shown = (("pushed", "pushed_records"), ("popped", "popped_records"), ("settled", "settled_records"))
    cells = [(f"{name} per second", f"{rates[key]:,.1f}") for name, key in shown]
    totals = [(f"{name} since start", f"{counters[key]:,}") for name, key in shown]
    return "<h2>This server</h2>" + _table(("", ""), [*cells, *totals])


def _queue_table(queues: Sequence[QueueStatus]) -> str:
    rows = [
        (
            status.queue,
            f"{status.partitions:,}",
            f"{status.records:,}",
            f"{status.waiting:,}",
            f"{status.dead_letters:,}",
        )
        for status in queues
    ]
    return "<h2>Queues</h2>" + _table(("queue", "partitions", "records", "waiting", "dead letters"), rows)


def _group_table(groups: Sequence[GroupStatus], now: int) -> str:
    rows = [
        (
            f"{status.queue} → {status.group}",
            f"{status.lag:,}",
            "–" if status.oldest_waiting_at is None else f"{max(now - status.oldest_waiting_at, 0) / SECOND:,.1f} s",
            f"{status.leased:,}",
            f"{status.lost:,}",
        )
        for status in groups
    ]
    return "<h2>Groups</h2>" + _table(("queue → group", "lag", "behind", "leases", "lost"), rows)


def _table(head: Iterable[str], rows: Sequence[Iterable[str]]) -> str:
    """Text only as text: every cell is escaped."""
    if not rows:
        return "<p>none yet</p>"
    top = "".join(f"<th>{escape(name)}</th>" for name in head)
    body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows[:ROWS_MAX])
    more = (
        f"<p>the first {ROWS_MAX:,}; headwater queues and headwater groups list all</p>" if len(rows) > ROWS_MAX else ""
    )
    return f"<table><tr>{top}</tr>{body}</table>{more}"
