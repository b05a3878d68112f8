"""All routes of a server behind one handler: what transports carry and guards stand in front of."""

from headwater.doors import health, metrics
from headwater.doors.browser import routes as browser
from headwater.doors.documents import routes as documents
from headwater.doors.jobs import routes as jobs
from headwater.doors.native import log_routes
from headwater.doors.native import routes as native
from headwater.doors.openapi import with_openapi
from headwater.doors.queen import routes as queen
from headwater.doors.realtime import document_routes, room_routes
from headwater.doors.realtime import routes as realtime
from headwater.doors.routes import Router
from headwater.doors.site import Site

ROUTES = with_openapi(
    (
        *health.ROUTES,
        *metrics.ROUTES,
        *native.ROUTES,
        *log_routes.ROUTES,
        *queen.ROUTES,
        *jobs.ROUTES,
        *realtime.ROUTES,
        *document_routes.ROUTES,
        *room_routes.ROUTES,
        *browser.ROUTES,
        *documents.ROUTES,
    )
)


def make_door(site: Site) -> Router:
    """Everything that can be asked of a site."""
    return Router(site, ROUTES, queen.ABSENT)
