"""What the model pool opens: a model in this process, or an adapter on a server that other workers use, too."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from ptopt.model.advisor import Advisor
from ptopt.model.calibration import Calibration, JudgeFit
from ptopt.model.interface import ChatPrompt, JudgePrompt, ModelUnavailableError
from service.settings import Settings

if TYPE_CHECKING:
    from ptopt.model.backends.open import OpenModel

# Seconds for which an adapter stays on a server after nobody here wants it: longer than the longest job of another
# worker, which may have begun with it.
_ON_A_SERVER = 900.0
_FOLDERS = re.compile(r"(?<!\S)~?/(?:[^/,+]*/)*")
# No finding is shown to it that the rules would not show; each makes it say why it cannot answer.
_NO_JUDGE = Calibration(judge=JudgeFit(0.0, 1.0, 0.0, floor=1.0))


class Model(Protocol):
    """An open model."""

    linger: float
    """Seconds for which it is to be kept after the last use."""

    def advisor(self, seconds: float) -> Advisor:
        """For one review, which waits no longer than this."""
        ...

    def keep(self) -> None:
        """Called from time to time while it serves: see to it that it can."""
        ...

    def retire(self) -> None:
        """It is not wanted any more: give back what it holds, everywhere."""
        ...

    def close(self) -> None:
        """This process ends; others may go on with what they share."""
        ...


class InProcess:
    """A model that lives and dies with this process."""

    linger = 0.0

    def __init__(self, opened: OpenModel) -> None:
        self._opened = opened

    def advisor(self, seconds: float) -> Advisor:
        advisor = self._opened.advisor(seconds)
        named = _FOLDERS.sub("", advisor.record.name)  # reviews are public: no path of ours stands in one
        advisor.record = dataclasses.replace(advisor.record, name=named)
        return advisor

    def keep(self) -> None:
        pass

    def retire(self) -> None:
        self.close()

    def close(self) -> None:
        self._opened.backend.close()


class Served(InProcess):
    """A model on a server. An adapter is loaded again after the server was restarted, and unloaded in the end."""

    linger = _ON_A_SERVER

    def __init__(self, opened: OpenModel, folder: Path | None) -> None:
        from ptopt.model.backends.loading import read_adapter

        super().__init__(opened)
        self._server: Any = opened.backend
        self._folder = folder
        self._name = read_adapter(folder).served_name if folder else ""

    def keep(self) -> None:
        if self._folder is not None and self._name not in self._server.served_models():
            self._server.load_adapter(self._name, str(self._folder))

    def retire(self) -> None:
        try:
            if self._folder is not None:
                self._server.unload_adapter(self._name)
        finally:
            self.close()


def open_model(settings: Settings, spec: str, adapter: str) -> Model:
    """Open the model in a folder, or of a name. `adapter` is the hash that reviews are to name it by, or "".

    Raises ModelUnavailableError.
    """
    from ptopt.model.backends.loading import is_adapter
    from ptopt.model.backends.open import open_model as open_

    given: dict[str, Any] = {}
    if settings.model_server is not None:
        key = settings.model_api_key
        given = {"server": settings.model_server, "api_key": key and key.get_secret_value()}
    else:
        given = {"engine": settings.model_engine}
        if settings.model_threads is not None and settings.model_engine == "transformers":
            given["threads"] = settings.model_threads
    opened = open_(spec, **given)
    if adapter:
        opened = dataclasses.replace(opened, adapter=adapter)
    if settings.model_server is None:
        return InProcess(opened)
    return Served(opened, Path(spec).resolve() if is_adapter(spec) else None)


def away(name: str, adapter: str, why: str) -> Advisor:
    """Stands in for a model that is not there: it answers with the reason, and the rules decide alone."""
    return Advisor(_Away(name, why), _NO_JUDGE, adapter=adapter)


class _Away:
    def __init__(self, name: str, why: str) -> None:
        self.name = name
        self._why = why

    def score(self, prompts: Sequence[JudgePrompt]) -> NoReturn:
        raise ModelUnavailableError(self._why)

    def complete(self, prompts: Sequence[ChatPrompt]) -> NoReturn:
        raise ModelUnavailableError(self._why)

    def close(self) -> None:
        pass
