"""A Django project in one file: what its `urls.py`, `settings.py` and `asgi.py` would say."""

from django.conf import settings
from django.core.asgi import get_asgi_application
from django.http import HttpRequest, JsonResponse
from django.urls import path

import headwater
from tests.doors.hosts import PREFIX, STORE

settings.configure(ROOT_URLCONF=__name__, ALLOWED_HOSTS=["*"], SECRET_KEY="of a test")


def own(request: HttpRequest) -> JsonResponse:
    return JsonResponse({"who": "the host"})


urlpatterns = [path("own", own)]

app = headwater.asgi(STORE).in_front_of(get_asgi_application(), at=PREFIX)
