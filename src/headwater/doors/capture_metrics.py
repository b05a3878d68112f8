"""Prometheus families for captures: what was pushed, how far behind they are, what their sources keep for them."""

from collections.abc import Callable

from prometheus_client.core import GaugeMetricFamily, Metric

from headwater.clock import SECOND
from headwater.doors.site import Site
from headwater.model.capture import STEPS, CaptureState, decode_state
from headwater.model.principal import Principal
from headwater.stores.questions import ListMilestones

_FIGURES: dict[str, tuple[str, Callable[[CaptureState], float | None]]] = {
    "changes": ("Changes that were pushed", lambda state: state.changes),
    "lag_bytes": ("What the source has written and the log does not have", lambda state: state.lag_bytes),
    "kept_bytes": ("What the source keeps for this capture", lambda state: state.kept_bytes),
    "kept_bytes_max": ("After how much of it the source gives up", lambda state: state.kept_bytes_max),
    "alarm": ("1 when the source keeps too much", lambda state: bool(state.alarm)),
}


async def capture_families(site: Site, principal: Principal) -> list[Metric]:
    """The captures into queues that a principal may use; none, where there is none."""
    families = {
        name: GaugeMetricFamily(f"headwater_capture_{name}", text, labels=("capture", "queue"))
        for name, (text, _) in _FIGURES.items()
    }
    seen = GaugeMetricFamily(
        "headwater_capture_seen_age_seconds", "Since a capture said something", labels=("capture", "queue")
    )
    for milestone in await site.queues.ask(ListMilestones(principal.database, STEPS)):
        state = decode_state(milestone.note)
        if not state.is_followed or not principal.may_use(state.queue):
            continue
        labels = (milestone.name.removeprefix(STEPS), state.queue)
        seen.add_metric(labels, max(site.clock.now() - milestone.reached_at, 0) / SECOND)
        for name, (_, figure) in _FIGURES.items():
            if (value := figure(state)) is not None:
                families[name].add_metric(labels, float(value))
    return [family for family in (*families.values(), seen) if family.samples]
