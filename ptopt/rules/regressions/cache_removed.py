from __future__ import annotations

import re

from ptopt.rules.base import Invalid
from ptopt.rules.regressions._base import Regression


class CacheRemoved(Regression):
    """A change computes again what was kept."""

    id = "PTO965"
    name = "cache-removed"
    most_stated = 0.45
    triggers = ("def",)
    measure = re.compile(r"@(functools\.)?(lru_cache|cache|cached_property|cachedmethod)\b|@cached\(")
    still = re.compile(r"cache")
    work = re.compile(r"\w")
    prior = 0.45
    message = (
        "The result is then computed on each call, also for arguments that were seen before. Keep the decorator, or "
        "keep the result where it is used."
    )
    why = (
        "A cached function answers a repeated question at once; without the cache it reads or computes again."
    )
    source = "[Python documentation: functools.cache](https://docs.python.org/3/library/functools.html)"
    when_wrong = "the result depends on more than the arguments, or the cache held too much memory"

    VALID = (
        """
        @functools.lru_cache
        def table(size):
            return torch.arange(size)
        """,
        """
        # - @functools.lru_cache
        @functools.cache
        def table(size):
            return torch.arange(size)
        """,
        """
        # - @lru_cache
        # - def table(size):
        # -     return torch.arange(size)
        def other(size):
            return size
        """,
    )
    INVALID = (
        Invalid("""
            # - @functools.lru_cache(maxsize=None)
            def table(size):  # !
                return torch.arange(size)
        """),
        Invalid("""
            class Model:
                # - @cached_property
                @property  # !
                def mask(self):
                    return torch.ones(self.size, self.size).tril()
        """),
        Invalid("""
            # - @lru_cache()
            def header(path):  # !
                return read(path)
        """),
    )
