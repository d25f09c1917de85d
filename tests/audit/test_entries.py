"""Which scripts train, and with which framework."""

from __future__ import annotations

import pytest

from ptopt.audit.entries import MOST_CANDIDATES, candidates
from ptopt.audit.modules import Modules
from ptopt.audit.values import State
from tests.audit.conftest import Auditor
from tests.audit.test_measures import LOADER, script

LOOP = """
import torch

def main():
    for x, y in loader:
        loss = criterion(model(x.cuda()), y.cuda())
        loss.backward()
        optimizer.step()

if __name__ == "__main__":
    main()
"""
CASES = {
    "PyTorch": LOOP,
    "transformers": """
        from transformers import Trainer, TrainingArguments

        def main():
            trainer = Trainer(model=model, args=TrainingArguments("out"), train_dataset=data)
            trainer.train()

        if __name__ == "__main__":
            main()
        """,
    "TRL": """
        from trl import SFTConfig, SFTTrainer

        trainer = SFTTrainer(model, args=SFTConfig("out"), train_dataset=data)
        if __name__ == "__main__":
            trainer.train()
        """,
    "Lightning": """
        import lightning.pytorch as pl

        if __name__ == "__main__":
            trainer = pl.Trainer(max_epochs=3)
            trainer.fit(model, data)
        """,
    "Accelerate": """
        import torch
        from accelerate import Accelerator

        def main():
            accelerator = Accelerator()
            for batch in loader:
                accelerator.backward(model(batch).loss)
                optimizer.step()

        if __name__ == "__main__":
            main()
        """,
    "Fabric": """
        import torch
        import lightning as L

        if __name__ == "__main__":
            fabric = L.Fabric(precision="bf16-mixed")
            for batch in loader:
                fabric.backward(model(batch))
                optimizer.step()
        """,
    "DeepSpeed": """
        import deepspeed
        import torch

        if __name__ == "__main__":
            model_engine, *_ = deepspeed.initialize(model=model, config="ds.json")
            for batch in loader:
                model_engine.backward(model_engine(batch))
                model_engine.step()
        """,
    "MMEngine": """
        from mmengine.runner import Runner

        if __name__ == "__main__":
            runner = Runner.from_cfg(cfg)
            runner.train()
        """,
    "Ignite": """
        import torch
        from ignite.engine import Engine

        def step(engine, batch):
            optimizer.zero_grad()
            loss = model(batch)
            loss.backward()
            optimizer.step()

        if __name__ == "__main__":
            Engine(step).run(loader, max_epochs=1)
        """,
}


@pytest.mark.parametrize("framework", CASES)
def test_frameworks(audited: Auditor, framework: str) -> None:
    (entry,) = audited({"train.py": CASES[framework]}).entries
    assert (entry.path, entry.framework) == ("train.py", framework)


def test_the_loop_may_stand_in_another_module(audited: Auditor) -> None:
    audit = audited(
        {
            "main.py": "from lib.engine import train_one_epoch\nif __name__ == '__main__':\n    train_one_epoch(1, 2)\n",
            "lib/__init__.py": "",
            "lib/engine.py": """
                import torch

                def train_one_epoch(model, loader):
                    for x in loader:
                        model(x).backward()
                        optimizer.step()
                """,
        }
    )
    (entry,) = audit.entries
    assert str(entry.loop) == "lib/engine.py:6"
    assert entry.path == "main.py"


@pytest.mark.parametrize(
    "work",
    [
        "trainer.train()",
        "history = trainer.train()",
        "Trainer(\n    3\n).train()",
        "try:\n    trainer.train()\nexcept KeyboardInterrupt:\n    pass",
    ],
)
def test_the_top_of_a_script_may_start_the_training_by_a_method(audited: Auditor, work: str) -> None:
    trainer = """
        import torch

        class Trainer:
            def train(self):
                for x in loader:
                    model(x).backward()
                    optimizer.step()
        """
    script = f"from core import Trainer\ntrainer = Trainer(3)\n{work}\n"
    other = "from core import Trainer\nmaker = Trainer\nmaker.names.append('train')\n"
    (entry,) = audited({"train.py": script, "core.py": trainer, "names.py": other}).entries
    assert (entry.path, str(entry.loop)) == ("train.py", "core.py:7")


def test_a_trainer_class_of_the_repository_is_followed(audited: Auditor) -> None:
    audit = audited(
        {
            "run.py": "from core import Trainer\nif __name__ == '__main__':\n    Trainer().train()\n",
            "core/__init__.py": "from .trainer import Trainer\n",
            "core/trainer.py": """
                import torch

                class Trainer:
                    def train(self):
                        for x in self.loader:
                            self.step(x)

                    def step(self, x):
                        self.model(x).backward()
                        self.optimizer.step()
                """,
        }
    )
    assert [str(entry.loop) for entry in audit.entries] == ["core/trainer.py:10"]


@pytest.mark.parametrize(
    "code",
    [
        "import torch\nif __name__ == '__main__':\n    model.eval()\n    print(model(x))\n",
        LOOP.replace('if __name__ == "__main__":\n    main()\n', ""),  # nothing starts it
        "import sklearn\nif __name__ == '__main__':\n    clf = SVC()\n    clf.fit(x, y)\n",
        "import torch\nfrom train import helper\nif __name__ == '__main__':\n    helper()\n",
    ],
)
def test_what_does_not_train_is_no_entry_point(audited: Auditor, code: str) -> None:
    module = "import torch\ndef helper(): pass\ndef fit():\n    loss.backward()\n    optimizer.step()\n"
    assert audited({"predict.py": code, "train.py": module}).entries == ()


def test_a_file_that_does_not_parse_is_named(audited: Auditor) -> None:
    audit = audited({"train.py": "import torch\nif __name__ == '__main__':\n    print 'old'\n"})
    assert audit.entries == ()
    assert [note.partition(":")[0] for note in audit.not_judged] == ["train.py"]


LIBRARY = """
from torch import nn
from transformers import Trainer, TrainingArguments


class Tagger(nn.Module):
    def arguments(self, folder, dataloader_num_workers=1, **kwargs):
        return TrainingArguments(folder, dataloader_num_workers=dataloader_num_workers, **kwargs)

    def train_model(self, data, **training):
        trainer = Trainer(model=self, args=self.arguments("out", **training), train_dataset=data)
        trainer.train()

    def predict(self, x):
        return self(x)
"""


def test_a_method_that_trains_is_started_by_those_who_call_it(audited: Auditor) -> None:
    files = {
        "tagger.py": LIBRARY,
        "train.py": "from tagger import Tagger\n\nif __name__ == '__main__':\n    Tagger().train_model([1], bf16=True)\n",
        "serve.py": "from tagger import Tagger\n\nif __name__ == '__main__':\n    print(Tagger().predict(1))\n",
    }
    (entry,) = audited(files).entries
    assert entry.path == "train.py" and entry.framework == "transformers"
    workers = next(m for m in entry.measures if m.key == "workers")
    assert workers.state is State.ON and "`num_workers` is 1" in workers.detail


def test_the_loop_of_the_script_itself_comes_before_the_trainer_of_a_library(audited: Auditor) -> None:
    own = script(before=LOADER.format(", num_workers=2"), after="from tagger import Tagger\n")
    own = own.replace("def main():", "def main():\n    Tagger().train_model([1])")
    (entry,) = audited({"tagger.py": LIBRARY, "own.py": own}).entries
    assert (entry.path, entry.framework) == ("own.py", "PyTorch")


def test_trainings_among_the_examples_come_before_converters() -> None:
    convert = b"import torch\nif __name__ == '__main__':\n    pass\n"
    files = {f"scripts/convert_{number}.py": convert for number in range(MOST_CANDIDATES)}
    files |= {"examples/train_net.py": convert, "scripts/other.py": convert}
    found = candidates(Modules(files), frozenset())
    assert found[:2] == ["examples/train_net.py", "scripts/other.py"]


def test_of_too_many_scripts_those_that_start_a_training_are_looked_at() -> None:
    other = b"import torch\nif __name__ == '__main__':\n    pass\n"
    files = {f"library/part_{number}.py": other for number in range(MOST_CANDIDATES)}
    fits = other.replace(b"pass", b"Trainer().fit(model)")
    files |= {"examples/train_net.py": fits, "examples/adapters.py": fits}
    found = candidates(Modules(files), frozenset())
    assert found[:2] == ["examples/train_net.py", "examples/adapters.py"]


def test_an_inference_steered_by_gradients_is_no_training(audited: Auditor) -> None:
    pipeline = """
        import torch

        class Pipeline:
            @torch.no_grad()
            def __call__(self, latents):
                for step in range(50):
                    x = latents.detach().requires_grad_()
                    optimizer = torch.optim.SGD([x], lr=0.1)
                    with torch.enable_grad():
                        self.unet(x).sum().backward()
                        optimizer.step()
        """
    script = "from pipe import Pipeline\nif __name__ == '__main__':\n    Pipeline()(3)\n"
    assert not audited({"make.py": script, "pipe.py": pipeline}).entries
    trains = pipeline.replace("@torch.no_grad()", "@timed()").replace("[x]", "self.unet.parameters()")
    assert len(audited({"make.py": script, "pipe.py": trains}).entries) == 1


def test_modules_that_only_choose_their_imports_take_no_place_of_a_script() -> None:
    module = b"import torch\nif is_available():\n    import xformers\n"
    files = {f"lib/module_{number}.py": module for number in range(MOST_CANDIDATES)}
    files["examples/train_net.py"] = b"import torch\nif __name__ == '__main__':\n    pass\n"
    assert candidates(Modules(files), frozenset()) == ["examples/train_net.py"]


ENGINE = """
    import argparse
    import torch

    def get_args():
        parser = argparse.ArgumentParser()
        parser.add_argument("--enable_deepspeed", action="store_true")
        args = parser.parse_args()
        make = None
        if args.enable_deepspeed:
            import deepspeed
            make = deepspeed.initialize
        return args, make

    def main(args, make):
        if make is not None:
            config = {"optimizer": {"type": "Adam"}, "fp16": {"enabled": True}}
            write(config)
        if args.enable_deepspeed:
            scaler = None
            model, optimizer, _, _ = make(args=args, model=net())
        else:
            model = torch.nn.parallel.DistributedDataParallel(net())
            optimizer = torch.optim.AdamW(model.parameters())
            scaler = torch.cuda.amp.GradScaler()
        for x, y in loader:
            if scaler is None:
                loss = model(x.half()).mean()
                model.backward(loss)
                model.step()
            else:
                with torch.cuda.amp.autocast():
                    loss = model(x).mean()
                scaler.scale(loss).backward()
                scaler.step(optimizer)
                optimizer.zero_grad()

    if __name__ == "__main__":
        main(*get_args())
"""


def test_an_engine_that_a_command_asks_for_runs_the_steps(audited: Auditor) -> None:
    (alone,) = audited({"train.py": ENGINE}).entries
    assert alone.framework == "PyTorch"
    (asked,) = audited({"train.py": ENGINE, "run.sh": "python train.py --enable_deepspeed\n"}).entries
    found = {row.key: row for row in asked.measures}
    assert asked.framework == "DeepSpeed"
    assert (found["distributed"].state, found["distributed"].detail) == (State.ON, "DeepSpeed")
    assert found["precision"].state is State.ON
    assert found["precision"].detail == "`fp16` of the configuration that the code makes for DeepSpeed"
    assert found["fused_optimizer"].state is State.UNKNOWN
    assert found["set_to_none"].state is State.NOT_APPLICABLE


def test_the_main_function_of_sacred_is_a_script(audited: Auditor) -> None:
    code = """
        import torch
        from sacred import Experiment

        ex = Experiment("x")

        @ex.automain
        def main(_config):
            for x, y in loader:
                loss = model(x).sum()
                loss.backward()
                optimizer.step()
        """
    (entry,) = audited({"run.py": code}).entries
    assert (entry.path, entry.framework, entry.line) == ("run.py", "PyTorch", 8)
    assert not audited({"run.py": code.replace("@ex.automain", "@ex.capture")}).entries


@pytest.mark.parametrize(
    "chosen",
    [
        "cls = CachedTrainer if args.cached else Trainer\n    trainer = cls(model, args)",
        "cls = Trainer\n    if args.cached:\n        cls = CachedTrainer\n    trainer = cls(model, args)",
        "cls = KINDS[args.kind]\n    trainer = cls(model, args)",
        "trainer = KINDS[args.kind](model, args)",
    ],
)
def test_the_class_of_a_trainer_may_be_chosen_before_it_is_made(audited: Auditor, chosen: str) -> None:
    code = f"""
from transformers import Trainer

class CachedTrainer(Trainer):
    pass

KINDS = {{"plain": Trainer, "cached": CachedTrainer}}

def main():
    {chosen}
    trainer.train()

if __name__ == "__main__":
    main()
"""
    assert [entry.framework for entry in audited({"train.py": code}).entries] == ["transformers"]


STEPS_ALONE = """
import torch
from megatron.core.pipeline_parallel import get_forward_backward_func

def main():
    for batch in loader:
        get_forward_backward_func()(forward_step, data_iterator=iter(batch), model=model)
        optimizer.step()

if __name__ == "__main__":
    main()
"""


def test_a_script_whose_backward_pass_a_package_runs_is_named(audited: Auditor) -> None:
    audit = audited({"pretrain.py": STEPS_ALONE, "test_model.py": STEPS_ALONE, "cosine.py": STEPS_ALONE})
    assert audit.entries == ()
    (note,) = audit.not_judged
    assert note == "pretrain.py: it takes a step of an optimizer in line 8; its backward pass was not found"


MANUAL = """
import torch
import pytorch_lightning as pl

class Coder(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.automatic_optimization = False
        self.net = torch.nn.Linear(4, 4)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters())

    def training_step(self, batch, index):
        optimizer = self.optimizers()
        optimizer.zero_grad()
        self.manual_backward(self.net(batch).sum())
        optimizer.step()
"""


@pytest.mark.parametrize(
    ("main", "frameworks"),
    [
        ("coder = Coder()\n    print(coder)", []),
        ("pl.Trainer(strategy=DDPStrategy()).fit(Coder(), data())", ["Lightning"]),
    ],
)
def test_a_module_of_lightning_that_nothing_fits_is_no_training(
    audited: Auditor, main: str, frameworks: list[str]
) -> None:
    code = f"{MANUAL}\nif __name__ == '__main__':\n    {main}\n"
    entries = audited({"coder.py": code}).entries
    assert [entry.framework for entry in entries] == frameworks
    for entry in entries:
        row = next(measure for measure in entry.measures if measure.key == "distributed")
        assert (row.state, "DDPStrategy()" in row.detail) == (State.ON, True)


def test_a_package_of_the_repository_without_an_init_file_is_its_own(audited: Auditor) -> None:
    trained = "import torch\n\ndef train(data):\n    net = torch.nn.Linear(4, 4)\n    optimizer = torch.optim.Adam(net.parameters())\n    for x in data:\n        optimizer.zero_grad()\n        net(x).sum().backward()\n        optimizer.step()\n"
    files = {
        "basicsr/train.py": f"from basicsr.data.sets import pairs\n{trained}\nif __name__ == '__main__':\n    train(pairs())\n",
        "basicsr/data/sets.py": "def pairs():\n    return [1]\n",
    }
    (entry,) = audited(files).entries
    assert entry.framework == "PyTorch"


@pytest.mark.parametrize(
    ("given", "state"),
    [("gpus=1", State.OFF), ("devices=1", State.OFF), ("devices=1, num_nodes=2", State.ON), ("devices=2", State.ON), ("", State.ON)],
)  # fmt: skip
def test_a_trainer_of_one_device_is_not_distributed(audited: Auditor, given: str, state: State) -> None:
    code = f"{MANUAL}\nif __name__ == '__main__':\n    pl.Trainer({given}).fit(Coder(), data())\n"
    (entry,) = audited({"coder.py": code}).entries
    assert next(measure for measure in entry.measures if measure.key == "distributed").state is state
