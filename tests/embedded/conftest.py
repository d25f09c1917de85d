"""The embedded service runs jobs as workers do: the fixtures are theirs."""

from tests.worker.conftest import github, repo, resources, service, settings  # noqa: F401
