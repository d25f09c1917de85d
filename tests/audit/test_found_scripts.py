"""Trainings that no code starts by its name: commands, options, configurations and other libraries do; and files of old Pythons."""

from __future__ import annotations

import pytest

from ptopt.audit.values import Audit, Kind, Measure, State
from tests.audit.conftest import Auditor

STEPS = """
    for x, y in loader:
        loss = criterion(model(x.cuda()), y.cuda())
        loss.backward()
        optimizer.step()
"""
LOOP = f"def train(workers: int = 4):{STEPS}"
MAIN = '\nif __name__ == "__main__":\n    '


def found(audit: Audit) -> list[tuple[str, str]]:
    return [(entry.path, entry.framework) for entry in audit.entries]


def row(audit: Audit, key: str) -> Measure:
    (entry,) = audit.entries
    return next(measure for measure in entry.measures if measure.key == key)


# -- commands by name --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        f"import typer\napp = typer.Typer()\n\n@app.command()\n{LOOP}{MAIN}app()\n",
        f"import click\n\n@click.group()\ndef cli():\n    pass\n\n@cli.command()\n{LOOP}{MAIN}cli()\n",
        f"from sacred import Experiment\nex = Experiment()\n\n@ex.main\n{LOOP}{MAIN}ex.run_commandline()\n",
        f"import fire\n\n{LOOP}{MAIN}fire.Fire()\n",
        f"from fire import Fire\n\n{LOOP}\nFire()\n",
        "import fire\n\nclass Job:\n    def go(self):" + STEPS.replace("\n", "\n    ") + f"{MAIN}fire.Fire(Job)\n",
    ],
)  # fmt: skip
def test_what_a_command_line_offers_by_name_runs(audited: Auditor, text: str) -> None:
    assert found(audited({"work.py": f"import torch\n{text}"})) == [("work.py", "PyTorch")]


@pytest.mark.parametrize(
    "text",
    [
        f"import click\n\n@click.command()\n{LOOP}{MAIN}print(3)\n",  # called by its name, and nobody calls it
        f"from parts import Fire\n\n{LOOP}{MAIN}Fire()\n",
        f"import fire\n\n{LOOP}\n\ndef test():\n    pass\n{MAIN}fire.Fire(test)\n",
        f"@app.get('/')\n{LOOP}{MAIN}app.run()\n",
    ],
)
def test_other_functions_do_not_run(audited: Auditor, text: str) -> None:
    assert found(audited({"work.py": f"import torch\n{text}"})) == []


OFFERED = """
    import torch
    import typer
    from torch.utils.data import DataLoader

    app = typer.Typer()

    @app.command()
    def train(workers: int = 4, pin: bool = typer.Option(True)):
        for x in DataLoader(data, num_workers=workers, pin_memory=pin):
            model(x.cuda()).backward()
            optimizer.step()

    if __name__ == "__main__":
        app()
"""


def test_the_signature_of_a_command_declares_its_options(audited: Auditor) -> None:
    audit = audited({"work.py": OFFERED})
    assert row(audit, "workers").detail == "`num_workers` is 4 (default of `--workers`)"
    assert row(audit, "pin_memory").state is State.ON
    audit = audited({"work.py": OFFERED, "run.sh": "python work.py --workers 0\n"})
    assert row(audit, "workers").state is State.OFF


# -- scripts -----------------------------------------------------------------------------------------------

TRAINER = "import torch\n\nclass Trainer:\n    def solve(self):" + STEPS.replace("\n", "\n    ")


def test_a_script_may_read_its_command_at_the_top(audited: Auditor) -> None:
    script = """
        import argparse
        from lib import Trainer

        parser = argparse.ArgumentParser()
        parser.add_argument("--test", action="store_true")
        args = parser.parse_args()
        if not args.test:
            Trainer().solve()
        """
    assert found(audited({"work.py": script, "lib.py": TRAINER})) == [("work.py", "PyTorch")]


MODES = f"""import argparse

import torch


{LOOP}

def main(args):
    if args.mode == "train":
        train()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--mode", default="test")
    main(parser.parse_args())
"""


@pytest.mark.parametrize(
    "command",
    [
        {"run.sh": "python main.py --mode train\npython main.py --mode show\n"},
        {"README.md": '# Net\n\n``` python main.py --mode "train" ```\n'},
        {"README.md": "# Net\n\n`python main.py --mode train`\n"},
    ],
)
def test_a_command_may_ask_for_the_training(audited: Auditor, command: dict[str, str]) -> None:
    audit = audited({"main.py": MODES, **command})
    assert found(audit) == [("main.py", "PyTorch")]
    assert row(audit, "non_blocking").state is State.OFF  # the training runs for the rows, too


@pytest.mark.parametrize("command", [{}, {"run.sh": "python main.py --mode test\npython main.py\n"}])
def test_a_training_that_no_command_asks_for_is_named(audited: Auditor, command: dict[str, str]) -> None:
    audit = audited({"main.py": MODES, **command})
    assert found(audit) == []
    assert (
        "main.py: it trains where an option says so, and not by the default of `--mode`" in audit.not_judged
    )
    others = audited({"main.py": MODES, "train.py": f"import torch\n{LOOP}{MAIN}train()\n", **command})
    assert found(others) == [("train.py", "PyTorch")]
    assert not any("where an option" in line for line in others.not_judged)


def test_a_command_that_does_other_work_says_nothing_of_the_training(audited: Auditor) -> None:
    script = f"""import argparse

import torch

{LOOP}
    torch.save(model.state_dict(), "last.pt")


parser = argparse.ArgumentParser()
parser.add_argument("--test_open", action="store_true")
args = parser.parse_args()
testing = False
test_open = args.test_open
if test_open:
    testing = True
if not testing:
    train()
"""
    files = {"main.py": script, "run.sh": "python main.py\npython main.py --test_open\n"}
    assert row(audited(files), "saving").state is State.ON


def test_a_script_with_another_name_may_call_a_training(audited: Auditor) -> None:
    step = {"step/train_net.py": f"import torch\n\n{LOOP.replace('train(', 'run(')}"}
    script = f"import step.train_net\n{MAIN}step.train_net.run()\n"
    assert found(audited({"run_sample.py": script, **step})) == [("run_sample.py", "PyTorch")]
    only_imports = "from step.train_net import run, show\nrun_later = run\n" + MAIN + "show(run_later)\n"
    assert found(audited({"run_sample.py": only_imports, **step})) == []


# -- configurations ----------------------------------------------------------------------------------------


def test_a_configuration_may_name_a_class_under_any_key(audited: Auditor) -> None:
    files = {
        "train.py": """
            import importlib
            import torch

            def find(path):
                module = importlib.import_module(path.rpartition(".")[0])
                return getattr(module, path.rpartition(".")[2])

            if __name__ == "__main__":
                trainer = find(config["trainer"]["path"])()
                trainer.train()
            """,
        "net/trainer.py": TRAINER.replace("solve", "train"),
        "net/other.py": TRAINER.replace("solve", "train"),
        "net/train.toml": '[trainer]\npath = "net.trainer.Trainer"\nepochs = 3\n',
    }
    audit = audited(files)
    assert found(audit) == [("train.py", "PyTorch")]
    assert audit.entries[0].loop is not None and audit.entries[0].loop.path == "net/trainer.py"
    del files["net/train.toml"]
    (line,) = audited(files).not_judged
    assert line == "train.py: no training in what was followed, but code is found by name at train.py:6"


# -- other libraries ---------------------------------------------------------------------------------------


FASTAI = """from fastai.vision import *

def make(rank):
    learner = Learner(data, model)
    if rank:
        learner = learner.to_distributed(rank)
    return learner
"""


@pytest.mark.parametrize(
    ("framework", "text"),
    [
        (
            "homura",
            f"from homura.trainers import SupervisedTrainer as T\n{MAIN}with T(model) as trainer:\n        trainer.train(loader)\n",
        ),
        ("torchnet", f"from torchnet.engine import Engine\n{MAIN}engine = Engine()\n    engine.train(h, loader, 9, optimizer)\n"),
        (
            "fastai",
            f"{FASTAI}{MAIN}learner = make(3)\n    learner.fit(epochs=9)\n",
        ),
        ("fastai", f"from fastai.vision.all import *\n{MAIN}learn = vision_learner(dls, resnet34)\n    learn.fine_tune(4)\n"),
    ],
)  # fmt: skip
def test_trainers_of_libraries(audited: Auditor, framework: str, text: str) -> None:
    audit = audited({"main.py": f"import torch\nfrom torch import nn\n\nnet = nn.Conv2d(3, 4, 5)\n{text}"})
    assert found(audit) == [("main.py", framework)]
    assert row(audit, "cudnn_benchmark").state is State.UNKNOWN  # the library may set it


def test_a_name_of_the_module_is_none_of_a_star_import(audited: Auditor) -> None:
    text = f"import torch\nfrom fastai.vision import *\nLearner = print\n{MAIN}Learner(3).fit(3)\n"
    assert found(audited({"main.py": text})) == []


@pytest.mark.parametrize(
    ("made", "named"),
    [("from zoo import Trainer", True), ("from sklearn.x import Learner as Trainer", False)],
)
def test_a_library_that_is_not_known_is_named(audited: Auditor, made: str, named: bool) -> None:
    audit = audited({"main.py": f"import torch\n{made}\n{MAIN}Trainer(model).train()\n"})
    assert found(audit) == []
    said = ("main.py: `Trainer` of zoo may train, which ptopt does not know",)
    assert audit.not_judged == (said if named else ())


def test_so_is_a_function_that_builds_a_trainer(audited: Auditor) -> None:
    text = (
        f"import torch\nfrom zoo.engine import build_trainer\n{MAIN}t = build_trainer(cfg)\n    t.train()\n"
    )
    said = ("main.py: `build_trainer` of zoo may train, which ptopt does not know",)
    assert audited({"main.py": text}).not_judged == said


# -- old Pythons -------------------------------------------------------------------------------------------

OLD = """
import torch
from torch.utils.data import DataLoader

def train():
    for x in DataLoader(data, pin_memory=True):
        loss = net(x.cuda(async=True)).sum()
        loss.backward()
        optimizer.step()

if __name__ == "__main__":
    train()
"""


def test_async_was_a_name(audited: Auditor) -> None:
    audit = audited({"train.py": OLD})
    assert found(audit) == [("train.py", "PyTorch")]
    copies = row(audit, "non_blocking")
    assert (copies.state, [str(place) for place in copies.evidence]) == (State.ON, ["train.py:7"])
    assert "torch up to 1.10.2" in row(audit, "compile").detail
    assert [o.kind for o in audit.entries[0].obstacles] == [Kind.OLD_TORCH]


def test_python_2_takes_tabs_and_spaces(audited: Auditor) -> None:
    text = OLD.replace("async=True", "").replace("        loss.backward()", "\tloss.backward()")
    audit = audited({"train.py": text})
    assert str(audit.entries[0].loop) == "train.py:8"
    assert "Python" not in row(audit, "compile").detail  # the indentation may be a slip


def test_a_training_that_cannot_be_read_is_named(audited: Auditor) -> None:
    (line,) = audited(
        {
            "train.py": OLD.replace("async=True", "").replace(
                "loss.backward()", "loss.backward()\n        print loss"
            )
        }
    ).not_judged
    assert line.startswith("train.py: it looks like a training, and was not read: not Python 3: ")
    assert line.endswith("; convert it, as with `2to3`, and audit again")
    (line,) = audited({"train.py": 'import torch\nprint "3"' + MAIN + "main()\n"}).not_judged
    assert line.startswith("train.py: not Python 3: ")


# -- rows of such scripts ----------------------------------------------------------------------------------


def test_what_is_put_into_an_empty_table_later_is_saved(audited: Auditor) -> None:
    text = f"""import torch

{LOOP}
    state = dict()
    state["model"] = model.state_dict()
    torch.save(state, "last.pt")
{MAIN}train()
"""
    assert row(audited({"train.py": text}), "saving").state is State.ON


def test_the_mode_of_a_network_is_no_call_of_the_training(audited: Auditor) -> None:
    text = """
        import torch

        class Trainer:
            def train(self):
                for epoch in range(9):
                    for net in self.nets:
                        net.train()
                    for x in loader:
                        self.nets[0](x).backward()
                        optimizer.step()
                torch.save(self.nets[0].state_dict(), "last.pt")

        if __name__ == "__main__":
            Trainer().train()
        """
    assert row(audited({"train.py": text}), "saving").detail == "once, synchronous"


def test_a_helper_copies_what_it_is_given(audited: Auditor) -> None:
    text = """
        import torch

        def send(net):
            return net.to(torch.device("cuda"))

        class Solver:
            def __init__(self):
                self.net = send(torch.nn.Linear(3, 4))
                self.opt = torch.optim.Adam(self.net.parameters())

            def step(self, data):
                x = send(data)
                self.net(x).sum().backward()
                self.opt.step()

            def train(self):
                for i in range(900):
                    self.step(next(self.batches))

        if __name__ == "__main__":
            Solver().train()
        """
    copies = row(audited({"train.py": text}), "non_blocking")
    assert (copies.state, [str(place) for place in copies.evidence]) == (State.OFF, ["train.py:13"])


@pytest.mark.parametrize("volatile", ["True", "not training", "(not training)"])
def test_volatile_turned_autograd_off(audited: Auditor, volatile: str) -> None:
    text = f"""import torch

{LOOP}
        evaluate()

def evaluate(training=False):
    model.eval()
    for x, y in val_loader:
        losses.append(criterion(model(Variable(x.cuda(), volatile={volatile})), y.cuda()).data[0])
{MAIN}train()
"""
    assert row(audited({"train.py": text}), "evaluation").state is State.ON


def test_a_wrapper_that_only_loads_a_state_trains_nothing(audited: Auditor) -> None:
    text = f"""import torch

{LOOP}

def make():
    net = torch.nn.Linear(3, 4)
    wrapped = torch.nn.DataParallel(net)
    wrapped.load_state_dict(torch.load("last.pt"))
    return net
{MAIN}model = make()
    train()
"""
    used = text.replace("return net", "return wrapped")
    assert row(audited({"train.py": text}), "distributed").detail == "one process on one device"
    assert "DataParallel" in row(audited({"train.py": used}), "distributed").detail
