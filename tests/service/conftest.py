"""A lease is renewed while a worker runs a job: the fixtures are those of the workers."""

from tests.worker.conftest import github, repo, resources, settings  # noqa: F401
