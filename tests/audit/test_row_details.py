"""Rows that speak of all that a run does: each way in which it saves, each part of a batch, each script that it starts."""

from __future__ import annotations

from ptopt.audit.values import Level, Measure, State
from tests.audit.conftest import Auditor

TRAIN = """
    import time
    import torch
    from torch import nn
    from torch.utils.data import DataLoader


    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.Sequential(LAYER, nn.ReLU())

        def forward(self, x):
            return self.layers(x)


    def main():
        BEFORE
        net = Net().cuda()
        optimizer = torch.optim.Adam(net.parameters())
        for epoch in range(90):
            train(net, optimizer, epoch)
            accuracy = evaluate(net)
            EPOCH


    def train(net, optimizer, epoch):
        for step, batch in enumerate(DataLoader(data(), num_workers=4)):
            COPIES
            loss = nn.functional.mse_loss(net(images), batch["y"])
            optimizer.zero_grad(SET)
            loss.backward()
            optimizer.step()


    if __name__ == "__main__":
        main()
"""


def code(layer: str = "nn.Linear(512, 512)", before: str = "", epoch: str = "pass", copies: str = "pass", given: str = "") -> str:  # fmt: skip
    filled = TRAIN.replace("LAYER", layer).replace("        BEFORE\n", before).replace("SET", given)
    return filled.replace("            EPOCH\n", _indented(epoch)).replace(
        "            COPIES\n", _indented(copies)
    )


def _indented(text: str) -> str:
    return "".join(f"            {line}\n" for line in text.split("\n"))


def row(audited: Auditor, key: str, files: dict[str, str]) -> Measure:
    entry = next(entry for entry in audited(files).entries if entry.path in ("train.py", "cli/launcher.py"))
    return next(measure for measure in entry.measures if measure.key == key)


def test_each_way_of_saving_is_named(audited: Auditor) -> None:
    epoch = (
        'if epoch % 10 == 0:\n    torch.save(net.state_dict(), "e.pt")\n'
        'if accuracy > best:\n    torch.save(net.state_dict(), "b.pt")\n'
        'if verbose:\n    torch.save(net.state_dict(), "v.pt")\n'
        'if len(names) > 0:\n    torch.save(net.state_dict(), "n.pt")'
    )
    found = row(audited, "saving", {"train.py": code(epoch=epoch)})
    assert found.detail == "every 10 epochs; each epoch where it is the best so far, synchronous"
    assert len(found.evidence) == 2


def test_the_second_best_is_a_way_too(audited: Auditor) -> None:
    epoch = (
        'if accuracy > held[0]:\n    torch.save(net.state_dict(), "1.pt")\n'
        'elif accuracy > held[1]:\n    torch.save(net.state_dict(), "2.pt")'
    )
    found = row(audited, "saving", {"train.py": code(epoch=epoch)})
    assert "`accuracy > held[0]`" in found.detail and "`accuracy > held[1]`" in found.detail


def test_saves_by_the_clock_are_named(audited: Auditor) -> None:
    epoch = (
        'torch.save(net.state_dict(), "e.pt")\n'
        'if time.time() - last > every_s:\n    torch.save(net.state_dict(), "l.pt")'
    )
    found = row(audited, "saving", {"train.py": code(epoch=epoch)})
    assert found.detail == "each epoch; each epoch, if `time.time() - last > every_s`, synchronous"


def test_a_part_of_the_batch_that_waits_is_off(audited: Auditor) -> None:
    step = """
    import torch


    def to_device(batch, device):
        images = batch["images"].to(device, non_blocking=True)
        tokens = batch["tokens"].to(device)
        return images, tokens
"""
    start = code(copies="images, tokens = to_device(batch, 'cuda')").replace(
        "    import time\n", "    import time\n    from step import to_device\n"
    )
    found = row(audited, "non_blocking", {"train.py": start, "step.py": step})
    assert (found.state, found.detail) == (State.OFF, "1 of 2 copies of the batch wait")
    free = step.replace(".to(device)", ".to(device, non_blocking=True)")
    pinned = start.replace("num_workers=4", "num_workers=4, pin_memory=True")
    assert row(audited, "non_blocking", {"train.py": pinned, "step.py": free}).state is State.ON


def test_what_the_call_says_of_the_gradients_goes_before_the_default(audited: Auditor) -> None:
    said = row(audited, "set_to_none", {"train.py": code(given="set_to_none=True")})
    assert (said.state, said.detail) == (State.ON, "`set_to_none=True`")
    assert row(audited, "set_to_none", {"train.py": code()}).detail == "the default since torch 2.0"


def test_the_search_of_cudnn_needs_a_convolution(audited: Auditor) -> None:
    before = "        torch.backends.cudnn.benchmark = True\n"
    none = row(audited, "cudnn_benchmark", {"train.py": code(before=before)})
    assert none.state is State.NOT_APPLICABLE
    some = row(audited, "cudnn_benchmark", {"train.py": code("nn.Conv2d(3, 8, 3)", before)})
    assert some.state is State.ON
    patches = row(audited, "cudnn_benchmark", {"train.py": code("nn.Conv2d(3, 8, 16, 16)", before)})
    assert patches.state is State.ON  # what is seen is not all: no linear layer stands there


LAUNCHER = """
    import subprocess
    import sys
    from argparse import ArgumentParser

    from lib.trainer import Trainer


    def main():
        parser = ArgumentParser()
        parser.add_argument("-n", "--nproc", type=int)
        parser.add_argument("training_script", type=str)
        args = parser.parse_args()
        for rank in range(args.nproc):
            subprocess.Popen([sys.executable, args.training_script])
        if len(sys.argv) > 9:
            Trainer().fit()


    if __name__ == "__main__":
        main()
"""
TRAINER = """
    import torch


    class Trainer:
        def fit(self):
            for x, y in self.loader:
                loss = self.model(x) - y
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
"""


def test_the_script_that_is_started_decides(audited: Auditor) -> None:
    files = {"cli/launcher.py": LAUNCHER, "lib/trainer.py": TRAINER, "lib/__init__.py": ""}
    for key in ("workers", "attention", "padding", "channels_last", "saving", "monitoring"):
        found = row(audited, key, files)
        assert found.state is State.UNKNOWN
        assert "the script given as `training_script` decides" in found.detail, key


def test_a_script_that_starts_tools_is_no_launcher(audited: Auditor) -> None:
    plain = LAUNCHER.replace('"training_script"', '"--tool"').replace("args.training_script", "args.tool")
    files = {"cli/launcher.py": plain, "lib/trainer.py": TRAINER, "lib/__init__.py": ""}
    assert "decides" not in row(audited, "saving", files).detail


WORKERS = """
    import torch
    from torch import nn
    from torch.utils.data import DataLoader, Dataset

    filters = {}


    def spectrogram(y, fmax):
        if fmax not in filters:
            filters[f"{fmax}_{y.device}"] = mel_filter(22050, 1024, 80, 0, fmax).to(y.device)
        return filters[f"{fmax}_{y.device}"] @ y


    class Rows(Dataset):
        def __getitem__(self, i):
            return spectrogram(torch.load(self.paths[i]), 8000)


    def train(model, loader, optimizer):
        for x in loader:
            loss = model(x.cuda()).mean()
            loss.backward()
            optimizer.step()


    if __name__ == "__main__":
        train(nn.Linear(512, 512).cuda(), DataLoader(Rows(), num_workers=4), optimizer)
"""


def test_work_of_workers_is_done_for_each_sample(audited: Auditor) -> None:
    def reason(code: str) -> str:
        (found,) = [each for each in audited({"train.py": code}).findings if each.finding.rule == "PTO493"]
        return found.reason

    assert reason(WORKERS) == "for each sample"
    assert reason(WORKERS.replace("model(x.cuda())", "spectrogram(model(x.cuda()), 8000)")) == "on every step"


def test_each_open_condition_around_a_save_is_named(audited: Auditor) -> None:
    epoch = (
        'if steps <= 0 or not valid:\n    if saved:\n        torch.save(net.state_dict(), "e.pt")\n'
        'if accuracy > best:\n    if saved:\n        torch.save(net.state_dict(), "b.pt")'
    )
    found = row(audited, "saving", {"train.py": code(epoch=epoch)})
    assert found.detail == (
        "each epoch, if `saved` and `steps <= 0 or not valid`; each epoch where it is the best so far, if `saved`, synchronous"
    )
    deep = 'if a:\n    if b:\n        if c:\n            torch.save(net.state_dict(), "e.pt")'
    found = row(audited, "saving", {"train.py": code(epoch=deep)})
    assert found.detail == "each epoch, if `c` and `b` and more holds, synchronous"


def test_tables_of_an_evaluation_are_no_checkpoint(audited: Auditor) -> None:
    epoch = 'torch.save(evaluator.coco_eval["bbox"].eval, "latest.pth")'
    assert row(audited, "saving", {"train.py": code(epoch=epoch)}).state is State.OFF


SCALED = """
    import torch
    import yaml
    from torch import nn
    from torch.utils.data import DataLoader


    def main():
        config = yaml.safe_load(open("config.yaml"))
        net = nn.Linear(3, 4).cuda()
        optimizer = torch.optim.Adam(net.parameters())
        scaler = torch.cuda.amp.GradScaler(enabled=config["enable_scaler"])
        context = torch.cuda.amp.autocast if config["enable_amp"] else nullcontext
        for x, y in DataLoader(data()):
            with context():
                loss = nn.functional.mse_loss(net(x.cuda()), y.cuda())
            scaler.scale(loss).backward()
            scaler.step(optimizer)


    if __name__ == "__main__":
        main()
"""


def test_the_switch_of_autocast_goes_before_that_of_the_scaler(audited: Auditor) -> None:
    for amp, scaler in ((False, True), (True, False)):
        config = f"batch_size: 4\nenable_amp: {amp}\nenable_scaler: {scaler}\n"
        found = row(audited, "precision", {"train.py": SCALED, "config.yaml": config})
        assert found.state is (State.ON if amp else State.OFF)
        assert "enable_amp" in found.detail and "scaler" not in found.detail.lower()


CHOSEN = """
    import argparse
    from contextlib import suppress
    from functools import partial

    import torch
    from lib import upload
    from torch import nn
    from torch.utils.data import DataLoader


    def get_autocast(precision, fsdp=False):
        if fsdp:
            return suppress
        if precision == "amp":
            amp_dtype = torch.float16
        elif precision == "amp_bf16" or precision == "amp_bfloat16":
            amp_dtype = torch.bfloat16
        else:
            return suppress
        return partial(torch.amp.autocast, device_type="cuda", dtype=amp_dtype)


    def main():
        parser = argparse.ArgumentParser()
        parser.add_argument("--precision", default="DEFAULT")
        args = parser.parse_args()
        net = nn.Linear(3, 4).cuda()
        optimizer = torch.optim.Adam(net.parameters())
        autocast = get_autocast(args.precision)
        for x, y in DataLoader(data()):
            with autocast():
                loss = nn.functional.mse_loss(net(x.cuda()), y.cuda())
            loss.backward()
            optimizer.step()


    if __name__ == "__main__":
        main()
"""
UPLOAD = """
    import argparse

    def upload(): ...

    if __name__ == "__main__":
        parser = argparse.ArgumentParser()
        parser.add_argument("--precision", default="other")
        upload()
"""


def _chosen(audited: Auditor, default: str, *commands: str) -> Measure:
    files = {"train.py": CHOSEN.replace("DEFAULT", default), "lib.py": UPLOAD}
    for number, given in enumerate(commands):
        files[f"run_{number}.sh"] = f"python train.py --precision {given}\n"
    return row(audited, "precision", files)


def test_an_option_that_makes_a_function_return_early_decides_the_row(audited: Auditor) -> None:
    found = _chosen(audited, "amp")
    assert (found.state, found.detail) == (State.ON, "autocast float16 (default of `--precision`)")
    found = _chosen(audited, "fp32")
    assert found.state is State.OFF and "default of `--precision`" in found.detail


def test_commands_that_differ_may_all_mean_the_same(audited: Auditor) -> None:
    found = _chosen(audited, "fp32", "amp", "amp_bf16")
    assert found.state is State.ON and "float16 or bfloat16" in found.detail
    assert "`--precision` differs between 2 commands (amp, amp_bf16)" in found.detail
    found = _chosen(audited, "amp", "amp_bf16", "fp32")
    assert found.state is State.UNKNOWN and "`--precision` differs" in found.detail


MODES = """
    import argparse

    import torch
    from torch import nn
    from torch.utils.data import DataLoader


    def train(net):
        net = nn.DataParallel(net)
        optimizer = torch.optim.Adam(net.parameters())
        batches = iter(DataLoader(data()))
        for step in range(1000):
            images = next(batches).to("cuda")
            loss = net(images).mean()
            loss.backward()
            optimizer.step()


    def animate(net, loader):
        net = nn.DataParallel(net)
        net.eval()
        with torch.no_grad():
            for x in loader:
                net(x)


    if __name__ == "__main__":
        parser = argparse.ArgumentParser()
        parser.add_argument("--mode", default="train")
        opt = parser.parse_args()
        if opt.mode == "train":
            train(nn.Linear(3, 4))
        elif opt.mode == "animate":
            animate(nn.Linear(3, 4), DataLoader(data()))
"""


def test_what_runs_in_another_mode_of_the_script_is_left_out(audited: Auditor) -> None:
    commands = "python train.py\npython train.py --mode animate\n"
    files = {"train.py": MODES, "run.sh": commands}
    assert row(audited, "evaluation", files).state is State.NOT_APPLICABLE
    assert [str(place) for place in row(audited, "distributed", files).evidence] == ["train.py:10"]


def test_the_next_batch_of_an_iterator_is_copied(audited: Auditor) -> None:
    found = row(audited, "non_blocking", {"train.py": MODES})
    assert found.state is State.OFF
    assert [str(place) for place in found.evidence] == ["train.py:14"]


DIFFUSION = """
    import argparse

    import torch
    from diffusers import UNet2DConditionModel
    from torch.utils.data import DataLoader
    from transformers import CLIPTextModel


    def main():
        parser = argparse.ArgumentParser()
        parser.add_argument("--log_dir", default=None)
        args = parser.parse_args()
        text = CLIPTextModel.from_pretrained("openai/clip-vit-base-patch32")
        unet = UNet2DConditionModel.from_pretrained("runwayml/stable-diffusion-v1-5").cuda()
        optimizer = torch.optim.AdamW(unet.parameters())
        PROCESSOR
        if args.log_dir is not None:
            from torch.utils.tensorboard import SummaryWriter
            writer = SummaryWriter(args.log_dir)
        for x, steps, tokens in DataLoader(data()):
            loss = unet(x.cuda(), steps, text(tokens)[0]).sample.mean()
            loss.backward()
            optimizer.step()


    if __name__ == "__main__":
        main()
"""


def test_networks_of_diffusers_have_convolutions_and_an_attention_of_their_own(audited: Auditor) -> None:
    plain = {"train.py": DIFFUSION.replace("PROCESSOR", "pass")}
    assert row(audited, "channels_last", plain).state is State.OFF
    assert row(audited, "cudnn_benchmark", plain).state is State.OFF
    found = row(audited, "attention", plain)
    assert (found.state, found.detail) == (State.ON, "SDPA, the default of diffusers with torch 2.0")
    old = row(audited, "attention", {**plain, "requirements.txt": "torch==1.13.1\n"})
    assert old.state is State.OFF and "torch==1.13.1" in old.detail
    own = {"train.py": DIFFUSION.replace("PROCESSOR", "unet.set_attn_processor(Own())")}
    assert row(audited, "attention", own).state is State.UNKNOWN


def test_a_path_that_the_reader_fills_in_is_given(audited: Auditor) -> None:
    files = {"train.py": DIFFUSION.replace("PROCESSOR", "pass")}
    assert row(audited, "monitoring", files).state is State.OFF
    files["run.sh"] = "LOGS='YOUR_PATH/logs'\npython train.py --log_dir ${LOGS}\n"
    assert row(audited, "monitoring", files).state is State.ON


def test_which_process_saves_is_no_condition(audited: Auditor) -> None:
    epoch = (
        "if not args.multiprocessing_distributed or (args.multiprocessing_distributed and args.rank == 0):\n"
        '    torch.save(net.state_dict(), "e.pt")'
    )
    assert row(audited, "saving", {"train.py": code(epoch=epoch)}).detail == "each epoch, synchronous"


def test_each_option_that_decides_together_is_named(audited: Auditor) -> None:
    before = (
        "        import argparse\n"
        "        parser = argparse.ArgumentParser()\n"
        '        parser.add_argument("--no_search", action="store_true")\n'
        '        parser.add_argument("--test", action="store_true")\n'
        "        opt = parser.parse_args()\n"
        "        torch.backends.cudnn.benchmark = not opt.no_search and not opt.test\n"
    )
    layer = "nn.Conv2d(3, 3, 3)"
    found = row(audited, "cudnn_benchmark", {"train.py": code(layer=layer, before=before)})
    assert found.detail == "`torch.backends.cudnn.benchmark` (default of `--no_search` and `--test`)"


def test_a_few_tokens_of_padding_weigh_little(audited: Auditor) -> None:
    levels = []
    for longest in (30, 512):
        copies = f'ids = tokenizer(batch["x"], padding="max_length", max_length={longest})'
        audit = audited({"train.py": code(copies=copies)})
        (found,) = (measure for measure in audit.entries[0].measures if measure.key == "padding")
        assert found.detail == f"sequences are padded to the maximum length ({longest} tokens)"
        levels += [gap.level for gap in audit.gaps if gap.key == "padding"]
    assert levels == [Level.LOW, Level.MODERATE]


def test_attention_whose_softmax_is_a_layer_is_seen(audited: Auditor) -> None:
    net = (
        "class Attention(nn.Module):\n    def forward(self, query, key, value):\n"
        "        attention_scores = torch.matmul(query, key.transpose(-1, -2))\n"
        "        attention_probs = nn.Softmax(dim=-1)(attention_scores)\n"
        "        return torch.matmul(attention_probs, value)\n"
    )
    files = {
        "train.py": code(layer="Attention()").replace(
            "import time", "import time\n    from net import Attention"
        ),
        "net.py": "import torch\nfrom torch import nn\n" + net,
    }
    assert row(audited, "attention", files).detail == "computed by separate products and softmax in `forward`"


STATE = """\
import os

distributed = False


def start():
    global distributed
    distributed = int(os.environ.get("WORLD_SIZE", 1)) > 1
"""
PARALLEL = """\
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader
import state

state.start()
net = nn.Linear(8, 8).cuda()
if state.distributed:
    net = DistributedDataParallel(net)
optimizer = torch.optim.SGD(net.parameters(), 0.1)
for x in DataLoader(range(8)):
    net(x.cuda()).sum().backward()
    optimizer.step()
"""


def test_a_variable_that_a_function_sets_does_not_keep_its_first_value(audited: Auditor) -> None:
    started = row(audited, "distributed", {"train.py": PARALLEL, "state.py": STATE})
    assert started.state is State.ON and "when several processes are started" in started.detail, started
    never = PARALLEL.replace("state.start()\n", "")
    assert row(audited, "distributed", {"train.py": never, "state.py": STATE}).state is State.OFF


BOTH_WAYS = """\
import torch
from torch import nn
from torch.utils.data import DataLoader


class Loader(DataLoader):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)


class Solver:
    def __init__(self, net, train, val):
        self.net, self.train_loader, self.val_loader = net, train, val
        self.optimizer = torch.optim.SGD(net.parameters(), 0.1)

    def run(self):
        for epoch in range(10):
            self.net.train()
            self.epoch()
            self.net.eval()
            self.epoch(validate=True)

    def epoch(self, validate=False):
        loader = self.val_loader if validate else self.train_loader
        for i, x in enumerate(loader):
            loss = self.net(x.cuda()).sum()
            if not validate:
                loss.backward()
                self.optimizer.step()
                if i % 1e3 == 0:
                    torch.save(self.net.state_dict(), "net.pt")


solver = Solver(nn.Linear(8, 8).cuda(), Loader(range(8), num_workers=4), Loader(range(8), num_workers=0))
solver.run()
"""


def test_rows_of_a_solver_that_trains_and_validates_in_one_function(audited: Auditor) -> None:
    files = {"train.py": BOTH_WAYS}
    evaluation = row(audited, "evaluation", files)
    assert evaluation.state is State.UNKNOWN and evaluation.detail.startswith("`self.net.eval()` is called")
    frozen = {"train.py": BOTH_WAYS.replace("self.net.train()", "pass")}
    assert row(audited, "evaluation", frozen).state is State.NOT_APPLICABLE
    workers = row(audited, "workers", files)
    assert workers.detail == "`num_workers` is 4 or 0; which of them was not found"
    assert (
        "every 1000 " in row(audited, "saving", files).detail
        or "multiple of 1000" in row(audited, "saving", files).detail
    )


def test_what_stands_beside_a_remainder_is_named(audited: Auditor) -> None:
    epoch = 'if batch == 0 and epoch != 0 and epoch % 10 == 0:\n    torch.save(net.state_dict(), "e.pt")'
    found = row(audited, "saving", {"train.py": code(epoch=epoch)})
    assert found.detail == "every 10 epochs, if `batch == 0`, synchronous"


def test_the_last_epoch_is_named(audited: Auditor) -> None:
    epoch = 'if epoch == args.epochs - 1:\n    torch.save(net.state_dict(), "last.pt")'
    found = row(audited, "saving", {"train.py": code(epoch=epoch)})
    assert found.detail == "after the last epoch, synchronous"
    epoch = 'if epoch + 1 == start_epoch:\n    torch.save(net.state_dict(), "first.pt")'
    found = row(audited, "saving", {"train.py": code(epoch=epoch)})
    assert found.detail == "each epoch, if `epoch + 1 == start_epoch`, synchronous"


SAVER = """

    class Saver:
        def _write(self, net, name):
            torch.save(net.state_dict(), name)

        def save_checkpoint(self, net, epoch):
            if self.best_epoch == epoch:
                self._write(net, "best.pt")
            if self.epochs == epoch:
                self._write(net, "last.pt")

"""


def test_each_way_to_one_save_is_named(audited: Auditor) -> None:
    """A method that saves only when it is the best and at the end: the call of it each epoch saves nothing itself."""
    text = code(before="        saver = Saver()\n", epoch="saver.save_checkpoint(net, epoch)")
    text = text.replace("\n\n    def main", SAVER + "\n    def main", 1)
    found = row(audited, "saving", {"train.py": text})
    assert found.detail == "each epoch where it is the best so far; after the last epoch, synchronous"


def test_a_multiple_of_an_epoch_is_named(audited: Auditor) -> None:
    epoch = 'if epoch % save_every == 0:\n    torch.save(net.state_dict(), "e.pt")'
    for made, said in (
        ("int(2 * per_epoch)", "every 2 epochs"),
        ("per_epoch", "each epoch"),
        ("per_epoch // 2", "every `save_every` epochs"),
    ):
        before = f"        per_epoch = len(train_loader)\n        save_every = {made}\n"
        found = row(audited, "saving", {"train.py": code(before=before, epoch=epoch)})
        assert found.detail == f"{said}, synchronous"


def test_each_stage_that_saves_is_named(audited: Auditor) -> None:
    text = code().replace(
        "            optimizer.step()\n",
        '            optimizer.step()\n        torch.save(net.state_dict(), "END.pt")\n',
    )
    text = text.replace(
        "for epoch in range(90):\n            train(", "if True:\n            epoch = 0\n            train("
    )
    start = text.index("    def train(net")
    stage = text[start : text.index("    if __name__")]
    text = text.replace(stage, stage + stage.replace("def train(", "def train_target("))
    text = text.replace(
        "train(net, optimizer, epoch)\n            acc",
        "train(net, optimizer, epoch)\n            train_target(net, optimizer, epoch)\n            acc",
    )
    found = row(audited, "saving", {"train.py": text})
    assert found.detail == "once in each of `train` and `train_target`, synchronous"
    assert len(found.evidence) == 2
