"""The broker, as those who publish and those who work must both see it."""

from __future__ import annotations

from celery import Celery

from service.settings import Settings

KEY_PREFIX = "ptopt:"  # before each key on Redis, which may be shared


def publisher(settings: Settings) -> Celery:
    """A Celery application that only sends. It gives up early: the inbox keeps what could not be sent."""
    app = Celery("ptopt-bot", broker=settings.broker_url, set_as_current=False)
    app.conf.update(
        broker_transport_options={
            "global_keyprefix": KEY_PREFIX,
            "socket_connect_timeout": 3,
            "socket_timeout": 5,
        },
        broker_connection_timeout=3,
        task_ignore_result=True,
    )
    return app
