from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ptopt.rules.base import Evidence, Invalid, Problem, Rule, SourceFile, Span
from ptopt.rules.code import quote
from ptopt.rules.ops._calls import names_in
from ptopt.rules.shared.flow import runs_network
from ptopt.source.bindings import is_self
from ptopt.source.calls import called_name
from ptopt.source.index import own_nodes

_READS = {
    "PIL.Image.open",
    "cv2.imread",
    "cv2.VideoCapture",
    "torchaudio.load",
    "librosa.load",
    "librosa.core.load",
    "soundfile.read",
    "numpy.load",
    "imageio.imread",
    "imageio.v2.imread",
    "torchvision.io.read_image",
    "torchvision.io.read_video",
    "decord.VideoReader",
    "skimage.io.imread",
    "scipy.io.wavfile.read",
    "nibabel.load",
    "SimpleITK.ReadImage",
    "rasterio.open",
    "tifffile.imread",
    "h5py.File",
    "scipy.io.loadmat",
    "matplotlib.pyplot.imread",
    "pydicom.dcmread",
}
_OWN = re.compile(
    r"^_?(load|read|open|decode|get)_?(image|img|audio|wav|video|frame|sample|pil|volume|picture|waveform)s?\w*$",
    re.I,
)
_NETWORK_METHODS = frozenset(
    "generate encode forward predict inference infer transcribe encode_image extract_features get_image_features embed "
    "forward_features detect set_image".split()
)


class DecodedBetweenForwards(Rule):
    """A file is read and decoded between two runs of the network, while the device waits.

    ## What it does
    Finds loops over files that read an image, a recording, a video or an array and run a network on it in the same iteration.

    ## Why it is slow
    The device idles while the host reads and decodes, and the host idles while the device computes; most such loops also run
    one sample at a time. Workers of a `DataLoader` read ahead, and give batches.

    ## Fix safety
    No fix is offered: the dataset is a class of its own.

    ## Sources
    - [torch.utils.data](https://docs.pytorch.org/docs/stable/data.html)
    """

    id = "PTO370"
    name = "decoded-between-forwards"
    family = "data"
    most_stated = 0.4
    triggers = (
        "open",
        "read",
        "decode",
        "load",
        "image",
        "img",
        "frame",
        "sample",
        "audio",
        "wav",
        "video",
        "volume",
    )
    nodes = (ast.For,)
    when_wrong = "there are only a few files"

    VALID = (
        """
        for images in DataLoader(dataset, num_workers=8):
            features.append(model(images))
        """,
        """
        for path in paths:
            images.append(Image.open(path))
        """,
        """
        image = Image.open(path)
        for step in range(steps):
            model(image)
        """,
    )
    INVALID = (
        Invalid("""
            import torch
            from PIL import Image

            def extract(model, paths, transform):
                features = []
                for path in paths:  # !
                # ~ for images in DataLoader(ImageFiles(paths, transform), batch_size=32, num_workers=8, pin_memory=True):
                    image = transform(Image.open(path)).unsqueeze(0).cuda()
                    # ~ images = images.cuda(non_blocking=True)
                    features.append(model(image))
                    # ~ features.append(model(images))
                return features
        """),
        Invalid("""
            import librosa

            def embed(encoder, files):
                for file in tqdm(files):  # !
                    wav, _ = librosa.load(file, sr=16000)
                    save(encoder(torch.from_numpy(wav).cuda()))
        """),
        Invalid("""
            import cv2
            import torch

            def predict(net, folder):
                for name in os.listdir(folder):  # !
                    image = cv2.imread(os.path.join(folder, name))
                    out = net(prepare(image).cuda())
                    write(name, out)
        """),
    )

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        if not isinstance(node, ast.For):
            return
        names = set(names_in(node.target))
        read: ast.Call | None = None
        network: ast.Call | None = None
        for inner in own_nodes(node):
            if isinstance(inner, ast.Assign) and names_in(inner.value) & names and read is None:
                names |= {n for t in inner.targets for n in names_in(t)}
            if not isinstance(inner, ast.Call) or inner.lineno < node.body[0].lineno:
                continue
            if read is None and _reads(inner, file) and names_in(inner) & names:
                read = inner
            elif read is not None and network is None and _runs(inner, file):
                network = inner
        if read is None or network is None or next(file.index.loops_of(read), None) is not node:
            return
        if isinstance(node.iter, (ast.List, ast.Tuple)):
            return
        yield Problem(
            node,
            f"{quote(file, read, 40)} (line {read.lineno}) reads and decodes on the host, then {quote(file, network, 40)} (line "
            f"{network.lineno}) runs on the device: each waits for the other in every iteration. Put the reading into a `Dataset` and "
            "iterate over a `DataLoader` with workers and a batch size, so that the next files are ready when the network is.",
            0.4,
            (
                Evidence(read.lineno, "read and decoded here"),
                Evidence(network.lineno, "the network runs here"),
            ),
            cause=node,
            span=Span(node.lineno, max(node.lineno, node.body[0].lineno - 1)),
            at=read,
            facts={"known_reader": bool(file.imports.qualified(read.func)), "single": True},
        )


def _reads(call: ast.Call, file: SourceFile) -> bool:
    qualified = file.imports.qualified(call.func)
    return qualified in _READS if qualified in _READS else bool(_OWN.search(called_name(call)) and call.args)


def _runs(call: ast.Call, file: SourceFile) -> bool:
    func = call.func
    if isinstance(func, ast.Attribute) and func.attr in _NETWORK_METHODS:
        return (
            not is_self(func)
            and runs_network(ast.Call(func.value, [], []), file)
            or file.values.is_a(func.value, "module")
        )
    qualified = file.imports.qualified(func)
    return (
        not qualified
        and runs_network(call, file)
        and not re.search(
            r"^(load|save|get|build|create|init|prepare|plot|write|read)|transform|augment|preproc",
            called_name(call),
        )
    )
