from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ptopt.rules.base import Evidence, Invalid, Problem, Rule, SourceFile
from ptopt.rules.code import quote
from ptopt.rules.ops._pure import is_conditional, reads
from ptopt.rules.shared.places import BENCHMARK_PATH
from ptopt.rules.shared.repeats import repeat_of, stays_same
from ptopt.source.calls import called_name
from ptopt.source.frequency import Often
from ptopt.source.index import FUNCTIONS, LOOPS

# Calls that read weights or vocabularies from disk.
_LOADS = frozenset(
    "from_pretrained get_encoding load_model SentenceTransformer LPIPS hub.load load_state_dict_from_url spacy.load "
    "get_tokenizer SentencePieceProcessor encoding_for_model create_model InceptionV3 CrossEncoder load_from_checkpoint".split()
)
# Calls that compute a table or compile something.
_TABLES = frozenset(
    "Resample MelSpectrogram MFCC InverseMelScale GriffinLim MelScale mel melscale_fbanks firwin butter create_dct "
    "create_fb_matrix melscale gammatone".split()
)
_ASKS = frozenset("get_device_properties get_device_capability get_device_name signature getsource".split())
_MODULES = re.compile(r"^(torch|torchvision|torchaudio|librosa|scipy|inspect|cv2)\b")


class ExpensiveObjectRebuilt(Rule):
    """Something that takes long to build is built again for each batch, sample or iteration.

    ## What it does
    Finds models, tokenizers, filter banks and resamplers that are made in a loop, a `forward`, a `__getitem__` or a
    function that runs for each batch, with arguments that do not change there; and questions about the device or a
    signature that are asked again on each call.

    ## Why it is slow
    Reading weights takes seconds, a resampling kernel or a mel filter bank milliseconds of the host on each call. The device
    waits meanwhile.

    ## Fix safety
    No fix is offered: the object needs a place to live.

    ## Sources
    - [torchaudio.transforms.Resample](https://docs.pytorch.org/audio/stable/generated/torchaudio.transforms.Resample.html)
    """

    id = "PTO459"
    name = "expensive-object-rebuilt"
    family = "ops"
    most_stated = 0.5
    nodes = (ast.Call,)
    calls = frozenset(n.rpartition(".")[2] for n in _LOADS | _TABLES | _ASKS)
    when_wrong = "the call is cached behind its name"

    VALID = (
        """
        class Features(nn.Module):
            def __init__(self):
                self.mel = torchaudio.transforms.MelSpectrogram(16000)
        """,
        """
        for name in names:
            model = AutoModel.from_pretrained(name)
        """,
        """
        def load(path):
            tokenizer = AutoTokenizer.from_pretrained(path)
        """,
    )
    INVALID = (
        Invalid("""
            import torchaudio

            class Features(nn.Module):
                def forward(self, wav):
                    return torchaudio.transforms.MelSpectrogram(16000)(wav)  # !
        """),
        Invalid("""
            class Texts(Dataset):
                def __getitem__(self, index):
                    tokenizer = AutoTokenizer.from_pretrained("bert-base-uncased")  # !
                    return tokenizer(self.texts[index], return_tensors="pt")
        """),
        Invalid("""
            class Attend(nn.Module):
                def forward(self, q, k, v):
                    properties = torch.cuda.get_device_properties(q.device)  # !
                    if properties.major == 8:
                        return fast(q, k, v)
                    return slow(q, k, v)
        """),
    )

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        kind = _kind(node, file) if isinstance(node, ast.Call) else ""
        if not kind or not isinstance(node, ast.Call):
            return
        place = repeat_of(node, file)
        frequency = file.frequencies.of(node)
        keys = reads(node, file)
        if place is not None and isinstance(place, LOOPS):
            constant = not keys - {"self"} or stays_same(node, place, file)
            if (
                not constant
                or frequency.often is Often.RARELY
                or frequency.often is Often.ONCE
                and kind != "load"
            ):
                return
        elif not _fixed(node, keys, file) or frequency.often < (
            Often.EVALUATION if kind == "table" else Often.STEP
        ):
            return
        far = "through `" in frequency.reason and not (kind == "ask" and frequency.trains)
        if far or BENCHMARK_PATH.search(file.path):
            return  # how often the callers run is too far away to be sure
        function = file.index.function_of(node)
        if (
            function is None
            or _guarded(node, function, file)
            or any("cache" in ast.unparse(d) for d in function.decorator_list)
        ):
            return
        where = (
            f"in each iteration of the loop at line {place.lineno}" if place is not None else frequency.reason
        )
        what = {
            "load": "reads and builds the same object again",
            "table": "computes its tables again",
            "ask": "asks the same question again, on the host, before the next kernel can start",
        }[kind]
        yield Problem(
            node,
            f"{quote(file, node, 50)} runs {where} and {what}. Make it once, in `__init__` or before the loop, and keep it in an "
            "attribute or a name.",
            {"load": 0.5, "table": 0.4, "ask": 0.3}[kind],
            (Evidence(frequency.line, f"runs {frequency.reason}"),) if frequency.line else (),
            cause=place or function,
            facts={"kind_" + kind: 1, "loop": place is not None},
        )


def _kind(call: ast.Call, file: SourceFile) -> str:
    name, qualified = called_name(call), file.imports.qualified(call.func)
    if name == "load":
        return "load" if qualified in ("torch.hub.load", "spacy.load") else ""
    if any(name == n for n in _LOADS):
        return "load"
    if not _MODULES.search(qualified):
        return ""
    if name in _TABLES and not qualified.startswith("torch."):
        return "table"
    return "ask" if name in _ASKS else ""


def _fixed(call: ast.Call, keys: frozenset[str], file: SourceFile) -> bool:
    """Does it read nothing but literals, and attributes and parameters that are settings rather than data?"""
    function = file.index.function_of(call)
    asks = called_name(call) in _ASKS
    for key in keys:
        if key.startswith("self.") or key == "self":
            continue
        bound = file.bindings.of(function, key)
        if not bound:
            continue
        if not asks and any(b.kind != "parameter" and not isinstance(b.value, ast.Constant) for b in bound):
            return False
    return True


def _guarded(call: ast.Call, function: ast.AST, file: SourceFile) -> bool:
    """Is it made only where it is missing (`if self.mel is None`)?"""
    if not is_conditional(call, function, file) or not isinstance(function, FUNCTIONS):
        return False
    for ancestor, _ in file.index.ancestors(call):
        if ancestor is function:
            return False
        if isinstance(ancestor, (ast.If, ast.IfExp)) and re.search(
            r"None|not in|hasattr|not self|not hasattr", ast.unparse(ancestor.test)
        ):
            return True
    return False
