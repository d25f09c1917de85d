"""Workers are critical where decoding surely is most of what a step waits for."""

from __future__ import annotations

import pytest

from tests.audit.conftest import Auditor
from tests.audit.test_critical import critical, train

EMBEDDINGS = """
class Embeddings(Dataset):
    def __init__(self, held):
        self.held = held

    def __getitem__(self, at):
        return self.held[at], 1
"""
WRAPPED = """
class Repeated(Dataset):
    def __init__(self, dataset):
        self.dataset = dataset

    def __getitem__(self, at):
        return self.dataset[at % 8]
"""


def test_a_dataset_beside_the_one_that_decodes_may_be_that_of_the_loader(audited: Auditor) -> None:
    code = train(imports=EMBEDDINGS, workers="")
    assert "workers" in critical(audited, {"train.py": code})  # nothing makes one
    both = code.replace("DataLoader(Pictures(paths)", "DataLoader(Embeddings(paths)").replace(
        "    for epoch", "    val_loader = DataLoader(Pictures(paths))\n    for epoch"
    )
    assert "workers" not in critical(audited, {"train.py": both})


def test_a_dataset_around_another_costs_what_that_costs(audited: Auditor) -> None:
    code = train(imports=WRAPPED, workers="").replace(
        "Pictures(paths), batch", "Repeated(Pictures(paths)), batch"
    )
    assert "workers" in critical(audited, {"train.py": code})


LANGUAGE = "language = AutoModelForCausalLM.from_pretrained('x')"
ADVERSARY = "loss_D = discriminator(images)"


@pytest.mark.parametrize(
    ("imports", "before", "expected"),
    [
        ("from transformers import AutoModelForCausalLM", LANGUAGE, False),
        ("", ADVERSARY, False),
        ("", "loss_d = 0", True),  # of depth, of overlap
        ("import diffusers", "pass", False),
        ("", f"{ADVERSARY}; model = nn.DataParallel(model)", True),
        ("", f"{ADVERSARY}; model = nn.parallel.DistributedDataParallel(model)", False),
    ],
)
def test_workers_weigh_less_beside_a_long_step(
    audited: Auditor, imports: str, before: str, expected: bool
) -> None:
    """A share of some per cent, but where one process decodes for all GPUs."""
    code = train(imports=imports, before=before, workers="")
    assert ("workers" in critical(audited, {"train.py": code})) is expected


@pytest.mark.parametrize(
    ("item", "expected"),
    [
        ("return to_tensor(Image.open(self.paths[at])), 1", False),
        ("return to_tensor(Image.open(self.paths[at]).resize((224, 224))), 1", True),
        ("return to_tensor(torchvision.transforms.RandomCrop(64)(Image.open(self.paths[at]))), 1", False),
        ("return torchvision.transforms.RandomResizedCrop(64)(Image.open(self.paths[at])), 1", True),
        ("return nibabel.load(self.paths[at]).get_fdata(), 1", True),
        ("return librosa.load(self.paths[at], sr=16000)[0], 1", True),  # resampled
        ("return soundfile.read(self.paths[at])[0], 1", False),
    ],
)
def test_pictures_of_the_size_that_the_network_takes_are_decoded_in_no_time(
    audited: Auditor, item: str, expected: bool
) -> None:
    code = train(imports="import librosa, nibabel, soundfile", item=item, workers="")
    assert ("workers" in critical(audited, {"train.py": code})) is expected


@pytest.mark.parametrize(
    ("batch", "expected"),
    [("batch_size=1", False), ("batch_size=8", True), ("batch_size=int(input())", True)],
)
def test_few_pictures_a_step_are_decoded_beside_it(audited: Auditor, batch: str, expected: bool) -> None:
    code = train(workers="").replace("batch_size=32", batch)
    assert ("workers" in critical(audited, {"train.py": code})) is expected
    volumes = code.replace(
        train().split("__getitem__")[1].split("\n")[1].strip(), "return nibabel.load('x'), 1"
    )
    assert "workers" in critical(
        audited, {"train.py": volumes.replace("import torch\n", "import torch\nimport nibabel\n", 1)}
    )
