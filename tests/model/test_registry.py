"""The registry keeps what it is given, and finds out what it was not given; whoever dies at whatever moment."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from click.testing import CliRunner

from ptopt.model.adapter_folder import RegistryError, content_hash
from ptopt.model.registry import CorruptError, Registry, State
from tests.model.adapters import make_adapter
from training.__main__ import main

ROOT = Path(__file__).parents[2]


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    return Registry(tmp_path / "registry")


def add(registry: Registry, tmp_path: Path, name: str, **card: object) -> str:
    return registry.add(make_adapter(tmp_path / "made" / name, name, **card))


@pytest.fixture
def three(registry: Registry, tmp_path: Path) -> list[str]:
    return [add(registry, tmp_path, name) for name in ("one", "two", "three")]


def state(registry: Registry, name: str) -> State:
    return registry.show(name).state


def test_the_life_of_an_adapter(registry: Registry, three: list[str]) -> None:
    one, two, _ = three
    assert state(registry, one) is State.CANDIDATE
    registry.promote(one, "champion")
    registry.promote(two, "challenger")
    assert (state(registry, one), state(registry, two)) == (State.ACTIVE, State.CANARY)
    registry.promote(two, "champion")
    assert (state(registry, one), state(registry, two)) == (State.RETIRED, State.ACTIVE)
    assert registry.show(two).aliases == ("champion", "challenger")
    assert [entry.hash for entry in registry.entries()] == three
    assert registry.resolve("champion") == registry.folder / "adapters" / two


def test_the_hash_is_that_of_the_shell(registry: Registry, tmp_path: Path) -> None:
    hash_ = add(registry, tmp_path, "a")
    listed = subprocess.run(
        "find * -type f | LC_ALL=C sort | xargs sha256sum | sha256sum",
        shell=True,
        cwd=registry.folder / "adapters" / hash_,
        capture_output=True,
        check=True,
        text=True,
    )
    assert listed.stdout.split()[0] == hash_


def test_the_card_counts_and_the_file_order_does_not(tmp_path: Path) -> None:
    one, same = make_adapter(tmp_path / "1"), make_adapter(tmp_path / "2")
    other = make_adapter(tmp_path / "3", created="2026-11-21")
    assert content_hash(one) == content_hash(same) != content_hash(other)
    (same / "calibration.json").write_text("{}")
    assert content_hash(one) != content_hash(same)


def test_adding_twice_is_adding_once(registry: Registry, tmp_path: Path) -> None:
    folder = make_adapter(tmp_path / "a")
    assert registry.add(folder) == registry.add(folder)
    assert len(registry.entries()) == len(registry.history()) == 1


def test_rolling_back_goes_further_back_each_time(registry: Registry, three: list[str]) -> None:
    for hash_ in three:
        registry.promote(hash_, "champion")
    assert registry.rollback("champion").hash == three[1]
    assert registry.rollback("champion").hash == three[0]
    assert registry.target("champion") == three[0]
    registry.promote(three[2], "champion")
    assert registry.rollback("champion").hash == three[0]
    assert registry.rollback("champion").hash == ""
    assert registry.resolve("champion") is None
    with pytest.raises(RegistryError, match="no champion to roll back"):
        registry.rollback("champion")


def test_the_aliases_have_histories_of_their_own(registry: Registry, three: list[str]) -> None:
    registry.promote(three[0], "champion")
    registry.promote(three[1], "challenger")
    registry.rollback("challenger")
    assert (registry.target("champion"), registry.target("challenger")) == (three[0], None)


def test_promoting_what_is_promoted_is_no_promotion(registry: Registry, three: list[str]) -> None:
    registry.promote(three[0], "champion")
    assert registry.promote("champion", "champion") is None
    assert registry.rollback("champion").hash == ""


@pytest.mark.parametrize(
    ("card", "why"),
    [
        ({"prompt_version": "0"}, "prompt version 0"),
        ({"schema_version": None}, "schema version None"),
        ({"base_hash": ""}, "base hash"),
        ({"base": None}, "the base of the model"),
    ],
)
def test_what_we_cannot_use_is_refused_unless_forced(
    registry: Registry, tmp_path: Path, card: dict[str, object], why: str
) -> None:
    good, odd = add(registry, tmp_path, "good"), add(registry, tmp_path, "odd", **card)
    assert why in registry.show(odd).problem
    with pytest.raises(RegistryError, match=why):
        registry.promote(odd, "champion")
    assert registry.target("champion") is None
    registry.promote(odd, "champion", force=True)
    registry.promote(good, "champion")
    with pytest.raises(RegistryError, match=why):
        registry.rollback("champion")
    assert registry.target("champion") == good
    assert registry.rollback("champion", force=True).forced


@pytest.mark.parametrize("damage", ["flip", "cut", "more", "gone", "link"])
def test_damage_is_found_and_cannot_be_forced(registry: Registry, three: list[str], damage: str) -> None:
    one = three[0]
    folder = registry.folder / "adapters" / one
    weights = folder / "adapter_model.safetensors"
    weights.chmod(0o644)
    if damage == "flip":
        weights.write_bytes(b"x" + weights.read_bytes()[1:])
    elif damage == "cut":
        weights.write_bytes(weights.read_bytes()[:-1])
    elif damage == "more":
        (folder / "more.json").write_text("{}")
    elif damage == "gone":
        weights.unlink()
    else:
        weights.unlink()
        weights.symlink_to("/dev/null")
    with pytest.raises(RegistryError):
        registry.promote(one, "champion", force=True)
    assert registry.target("champion") is None
    assert registry.show(one).problem
    assert len(registry.entries()) == 3  # the others can still be seen


def test_damage_to_the_champion_is_found_when_it_is_read(registry: Registry, three: list[str]) -> None:
    registry.promote(three[0], "champion")
    card = registry.folder / "adapters" / three[0] / "card.json"
    card.chmod(0o644)
    card.write_text(card.read_text() + " ")
    with pytest.raises(CorruptError, match="was changed since"):
        registry.resolve("champion")


@pytest.mark.parametrize(
    ("name", "content", "why"),
    [
        ("training_args.bin", "", "may run code"),
        ("notes/model.PT", "", "may run code"),
        ("modeling.py", "", "may run code"),
        ("a\nb", "", "cannot be printed"),
        ("card.json", "[]", "is no card"),
        ("card.json", '{"name": 3}', "is no card"),
        ("card.json", "{", "cannot be read"),
    ],
)
def test_folders_that_are_not_taken(
    registry: Registry, tmp_path: Path, name: str, content: str, why: str
) -> None:
    folder = make_adapter(tmp_path / "a")
    (folder / name).write_text(content)
    with pytest.raises(RegistryError, match=why):
        registry.add(folder)
    assert registry.entries() == []


def test_links_are_not_taken(registry: Registry, tmp_path: Path) -> None:
    folder = make_adapter(tmp_path / "a")
    (folder / "passwd").symlink_to("/etc/passwd")
    with pytest.raises(RegistryError, match="neither a file nor a folder"):
        registry.add(folder)


def test_a_torn_line_of_the_history_did_not_happen(registry: Registry, three: list[str]) -> None:
    registry.promote(three[0], "champion")
    history = registry.folder / "history.jsonl"
    whole = history.read_bytes()
    history.write_bytes(whole + b'{"action": "promote", "hash": "')
    assert len(registry.history()) == 4
    registry.promote(three[1], "champion")
    assert history.read_bytes().startswith(whole)
    assert [event.hash for event in registry.history()][3:] == three[:2]


def test_a_line_that_nobody_can_read_is_named(registry: Registry, three: list[str]) -> None:
    history = registry.folder / "history.jsonl"
    history.write_bytes(history.read_bytes() + b"{}\n")
    with pytest.raises(CorruptError, match="line 4"):
        registry.promote(three[0], "champion")


_KILLED = """
import os, signal, sys
from pathlib import Path
from ptopt.model.registry import Registry
import ptopt.model.registry as module

left = int(sys.argv[1])
def dying(function):
    def call(*arguments, **options):
        global left
        left -= 1
        if left < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*arguments, **options)
    return call
def audit(event, arguments):  # each thing that is done to a file is a moment to die at
    global left
    if event in ("open", "os.rename", "os.remove", "os.symlink", "os.truncate", "os.mkdir", "os.chmod", "shutil.copyfile"):
        if str(arguments[0]).startswith(sys.argv[2]) or isinstance(arguments[0], int):
            left -= 1
            if left < 0:
                os.kill(os.getpid(), signal.SIGKILL)
registry = Registry(Path(sys.argv[2]))
import ptopt.model.prompt, ptopt.model.schema
os.fsync = dying(os.fsync)
sys.addaudithook(audit)
match sys.argv[3:]:
    case ["add", folder]:
        registry.add(Path(folder))
    case ["promote", name]:
        registry.promote(name, "champion")
    case ["rollback"]:
        registry.rollback("champion")
"""


def dies_after(moments: int, registry: Registry, *what: str) -> bool:
    """Whether a process that does this was killed before its so-many-th step on the disk."""
    command = [sys.executable, "-c", _KILLED, str(moments), str(registry.folder), *what]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode in (0, -signal.SIGKILL), ended.stderr
    return ended.returncode != 0


@pytest.mark.slow
def test_killed_at_any_moment_nothing_is_lost(registry: Registry, three: list[str], tmp_path: Path) -> None:
    one, two, three_ = three
    registry.promote(one, "champion")
    fourth = make_adapter(tmp_path / "fourth", "four")
    four = content_hash(fourth)
    for what, allowed in (
        (("promote", two), {one, two}),
        (("rollback",), {one, two, None}),
        (("add", str(fourth)), None),
    ):
        moments = 0
        while dies_after(moments, registry, *what):
            moments += 1
            reader = Registry(registry.folder)
            if allowed is not None:
                assert reader.target("champion") in allowed
            for entry in reader.entries():
                assert entry.problem == "" and entry.hash in (*three, four)
            before = [event.hash for event in reader.history() if event.alias]
            # The next one finds a registry that works, and all that was done before.
            reader.promote(three_, "challenger")
            reader.rollback("challenger")
            after = [event.hash for event in reader.history() if event.alias]
            assert after[: len(before)] == before
            if what[0] != "add":  # to the start again
                while reader.target("champion") is not None:
                    reader.rollback("champion")
                for hash_ in (one,) if what[0] == "promote" else (one, two):
                    reader.promote(hash_, "champion")
        assert moments > 4, "it was never killed"
    assert len(registry.entries()) == 4
    assert not list(registry.folder.rglob(".incoming-*"))


@pytest.mark.slow
def test_many_at_once(registry: Registry, three: list[str], tmp_path: Path) -> None:
    """Threads of this process, and processes; each change is in the history, and the link is the last of them."""
    more = make_adapter(tmp_path / "more", "more")
    failures: list[BaseException] = []

    def work(seed: int) -> None:
        rng = random.Random(seed)
        mine = Registry(registry.folder)
        try:
            for _ in range(8):
                mine.promote(rng.choice(three), rng.choice(("champion", "challenger")))
                mine.add(more)
                assert mine.resolve("champion") or mine.resolve("challenger")
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    commands = [
        subprocess.Popen(
            [sys.executable, "-m", "training", "registry", "--folder", registry.folder, "promote", hash_],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        for hash_ in three
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [command.wait(60) for command in commands] == [0, 0, 0]
    assert not failures
    history = registry.history()
    assert len([event for event in history if event.action == "add"]) == 4
    for alias in ("champion", "challenger"):
        assert registry.target(alias) == [event.hash for event in history if event.alias == alias][-1]


def run(registry: Registry, *arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(main, ["registry", "--folder", str(registry.folder), *arguments])
    return result.exit_code, result.output


def test_command_line(registry: Registry, tmp_path: Path) -> None:
    assert run(registry, "list") == (0, f"No adapter in {registry.folder}.\n")
    made = make_adapter(tmp_path / "a", "judge\x1b[31m\N{RIGHT-TO-LEFT OVERRIDE}")
    code, output = run(registry, "add", str(made))
    hash_ = output.strip()
    assert (code, len(hash_)) == (0, 64)
    assert run(registry, "promote", hash_[:8]) == (0, f"{hash_[:12]} is the champion now.\n")
    assert run(registry, "promote", hash_[:8], "champion") == (0, f"{hash_[:12]} is the champion already.\n")
    for output in (run(registry, "list")[1], run(registry, "show", "champion")[1]):
        assert "active" in output and hash_[:12] in output
        assert "\x1b" not in output and "\N{RIGHT-TO-LEFT OVERRIDE}" not in output
    assert run(registry, "rollback") == (0, "There is no champion now.\n")
    assert run(registry, "rollback") == (1, "Error: there is no champion to roll back\n")
    assert run(registry, "promote", "abc") == (
        1,
        "Error: 'abc' is too short for a hash: 6 characters are needed\n",
    )
    assert run(registry, "promote", "0123456789")[1].startswith("Error: no adapter has a hash that begins")
    assert run(registry, "show", "challenger") == (1, "Error: there is no challenger\n")
    assert run(registry, "add", str(tmp_path))[0] == 1


@pytest.mark.parametrize(
    ("module", "heavy"),
    [
        (
            "ptopt.model.registry",
            {"torch", "sqlalchemy", "datasets", "click", "httpx", "numpy", "pydantic", "rich"},
        ),
        ("training.registry_cli", {"torch", "sqlalchemy", "datasets"}),
    ],
)
def test_it_imports_nothing_heavy(module: str, heavy: set[str]) -> None:
    code = f"import sys, {module}; assert not {heavy} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)
