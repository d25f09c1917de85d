"""How Celery is set up: the settings that keep a crash from losing or repeating work, and the table of handlers."""

from __future__ import annotations

from service import broker
from service.dispatch import TASK
from service.jobs import QUEUES, Kind
from service.settings import Settings
from worker.app import QUEUE_NAMES, make_app
from worker.handlers import HANDLERS, handler_of


def test_every_kind_has_a_handler_and_a_queue() -> None:
    assert set(HANDLERS) == set(QUEUES) == set(Kind)
    assert set(QUEUES.values()) <= set(QUEUE_NAMES)
    for kind in Kind:
        assert callable(handler_of(kind))


def test_a_message_outlives_the_longest_task() -> None:
    conf = make_app(Settings()).conf
    assert conf.task_soft_time_limit < conf.task_time_limit
    assert conf.task_time_limit < conf.broker_transport_options["visibility_timeout"]


def test_crashes_do_not_lose_messages() -> None:
    conf = make_app(Settings()).conf
    assert conf.task_acks_late and conf.task_reject_on_worker_lost
    assert conf.worker_prefetch_multiplier == 1


def test_publisher_and_worker_mean_the_same_queues() -> None:
    settings = Settings()
    sends, works = broker.publisher(settings), make_app(settings)
    assert works.conf.broker_transport_options["global_keyprefix"] == broker.KEY_PREFIX
    assert TASK in works.tasks
    for name in QUEUE_NAMES:
        sent, read = sends.amqp.queues[name], works.amqp.queues[name]
        assert (sent.name, sent.exchange.name, sent.routing_key) == (
            read.name,
            read.exchange.name,
            read.routing_key,
        )


def test_two_applications_of_one_process_have_a_task_each() -> None:
    first, second = make_app(Settings()), make_app(Settings())
    assert first.tasks[TASK].run is not second.tasks[TASK].run
