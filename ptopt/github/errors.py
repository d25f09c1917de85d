"""What can go wrong with GitHub, by what there is to do about it. No text here carries a token."""

from __future__ import annotations


class GitHubError(Exception):
    """The request failed. The text is for the log: method, path, status and GitHub's message."""

    def __init__(self, message: str, *, status: int = 0) -> None:
        super().__init__(message)
        self.status = status  # the HTTP status; 0 without an answer


class NotFoundError(GitHubError):
    """404 or 410: it is gone, or hidden from us."""


class ForbiddenError(GitHubError):
    """401 after a fresh token, or 403 without a rate limit: we lack a permission. Repeating does not help."""


class RejectedError(GitHubError):
    """400, 409, 422: GitHub understood and refused. `errors` are its reasons, as it gave them."""

    def __init__(self, message: str, *, status: int, errors: tuple[str, ...] = ()) -> None:
        super().__init__(message, status=status)
        self.errors = errors


class TooLargeError(GitHubError):
    """406 `too_large`, or content above the size that the caller allows."""


class RateLimitedError(GitHubError):
    """A primary or secondary limit, or 422 `abuse`: come back after `retry_after` seconds. Nothing was done."""

    def __init__(self, message: str, *, status: int, retry_after: float) -> None:
        super().__init__(message, status=status)
        self.retry_after = retry_after


class UnavailableError(GitHubError):
    """A read failed with 5xx, a time-out or a broken connection, also when repeated: try again later."""


class AmbiguousError(GitHubError):
    """A write failed with 5xx, a time-out or a broken connection: it may have happened. Look before repeating."""


class SupersededError(Exception):
    """This review is no longer wanted: there is a newer head, or somebody else holds the lease. Write nothing more."""
