"""Faults on demand: what GitHub does on a bad day."""

from __future__ import annotations

import re
import threading
import time
from dataclasses import dataclass
from typing import Any

from fake_github.http import Answer, ApiError

_SECONDARY = (
    "You have exceeded a secondary rate limit. Please wait a few minutes before you try again. "
    "If you reach out to GitHub Support for help, please include the request ID DEAD:BEEF:1:2:3."
)
_SECONDARY_DOCS = (
    "https://docs.github.com/rest/using-the-rest-api/rate-limits-for-the-rest-api#about-secondary-rate-limits"
)
_PRIMARY_DOCS = "https://docs.github.com/rest/using-the-rest-api/rate-limits-for-the-rest-api#primary-rate-limit-for-authenticated-users"
FAULTS = (
    "500",
    "502",
    "503",
    "500-after",
    "502-after",
    "503-after",
    "drop",
    "drop-after",
    "primary-limit",
    "secondary-limit",
    "secondary-limit-429",
    "abuse",
    "expired-token",
    "slow",
    "slow-after",
)


@dataclass
class Fault:
    """`name` is one of FAULTS; `-after` ones happen when the request has been carried out."""

    method: str
    path: re.Pattern[str]
    name: str
    times: int
    after: int
    seconds: float
    hits: int = 0

    @property
    def late(self) -> bool:
        return self.name.endswith("-after")

    @property
    def kind(self) -> str:
        return self.name.removesuffix("-after")

    def answer(self) -> Answer | None:
        """What is answered instead; None when the connection is dropped or the answer is only slow."""
        if self.kind in ("500", "502", "503"):
            # A 502 comes from the load balancer, as a page.
            page = b"<html><body><h1>502 Bad Gateway</h1></body></html>"
            if self.kind == "502":
                return Answer(page, 502, media_type="text/html")
            data: dict[str, Any] = {"message": "Server Error", "documentation_url": "", "status": self.kind}
            return Answer(data, int(self.kind))
        wait = {"Retry-After": str(max(1, round(self.seconds)))}
        if self.kind == "primary-limit":
            headers = {
                "X-RateLimit-Remaining": "0",
                "X-RateLimit-Reset": str(round(time.time() + self.seconds)),
            }
            text = "API rate limit exceeded for installation ID 1."
            return ApiError(403, text, docs=_PRIMARY_DOCS, headers=headers).answer
        if self.kind.startswith("secondary-limit"):
            status = 429 if self.kind.endswith("429") else 403
            return ApiError(status, _SECONDARY, docs=_SECONDARY_DOCS, headers=wait).answer
        if self.kind == "abuse":
            errors = [{"resource": "PullRequestReview", "code": "abuse", "field": "base"}]
            errors[0]["message"] = "was submitted too quickly"
            return ApiError(422, "Validation Failed", errors).answer
        if self.kind == "expired-token":
            return ApiError(401, "Bad credentials").answer
        return None


class Faults:
    """`add` one; each request hits at most the first that matches."""

    def __init__(self) -> None:
        self._faults: list[Fault] = []
        self._lock = threading.Lock()

    def add(
        self, method: str, path: str, fault: str, times: int = 1, after: int = 0, seconds: float = 60.0
    ) -> Fault:
        """Lets requests of `method` ("*": any) whose path matches the regex `path` (somewhere) fail.

        The first `after` of them pass, then `times` fail (-1: all). `seconds`: until the limit is over, or how
        slow the answer is.
        """
        if fault not in FAULTS:
            raise ValueError(f"no fault {fault!r}; there are {', '.join(FAULTS)}")
        made = Fault(method.upper(), re.compile(path), fault, times, after, seconds)
        with self._lock:
            self._faults.append(made)
        return made

    def clear(self) -> None:
        with self._lock:
            self._faults.clear()

    def take(self, method: str, path: str) -> Fault | None:
        """The fault that this request meets."""
        with self._lock:
            for fault in self._faults:
                if fault.method not in ("*", method) or not fault.path.search(path):
                    continue
                if fault.after:
                    fault.after -= 1
                elif fault.times:
                    fault.times -= 1
                    fault.hits += 1
                    return fault
        return None
