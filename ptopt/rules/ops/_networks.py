"""Calls that are expensive by themselves: of networks, for gradients, and what decodes a sample on the host."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass

from ptopt.rules.base import SourceFile
from ptopt.rules.code import first_call
from ptopt.rules.ops._pure import changes, is_module_call
from ptopt.source.bindings import is_self
from ptopt.source.calls import called_name, last_name

# What people call a whole network.
_NETWORK = re.compile(
    r"^(base_|ref(erence)?_|old_|target_|pretrained_|frozen_|ema_|my_|the_)?("
    r"model|net|network|backbone|encoder|decoder|autoencoder|vae|vgg(16|19)?|unet|u_net|resnet(18|34|50|101)?|lpips|lpips_loss|clip|"
    r"discriminator|disc|discr|generator|gen|net_?[dg](_[a-z]+)?|[dg]_net|critic(_?[12])?|actor|policy|policy_net|q_?net(work)?|value_net|"
    r"teacher|student|transformer|vocoder|llm|lm|bert|classifier|detector|segmentor|text_encoder(_[12])?|image_encoder|"
    r"audio_encoder|video_encoder|vision_tower|visual_encoder|prompt_encoder|feature_extractor|perceptual_loss_fn)"
    r"(_model|_net|_network|_ema|_target|_t|_s|_teacher|_student|_?[abxy12])?$"
    r"|_(model|encoder|decoder|backbone|unet|vae|discriminator|vocoder)$",
    re.I,
)
RUNS = re.compile(
    r"^(forward|forward_\w+|generate|encode|decode|encode_\w+|decode_\w+|extract_features?|get_(text|image|audio)_features|"
    r"get_\w*embeddings?|predict|infer|sample|inference)$"
)
# Modules whose run costs next to nothing beside a network.
LIGHT = re.compile(
    r"^(Dropout\w*|\w*Dropout|DropPath|\w*ReLU\d?|GELU|\w*GELU|SiLU|Swish|ELU|SELU|CELU|Mish|Tanh|\w*Sigmoid|\w*Softmax\w*|Softplus|Identity|"
    r"Flatten|Unflatten|Rearrange|Reduce|\w*Pool\w*|\w*Shuffle|Upsample\w*|\w*Pad\w*|\w*Norm\w*|\w*Embedding\w*|\w*Loss|\w*Criterion|"
    r"Hard\w+|Threshold|\w*Similarity|\w*Distance|Fold|Unfold|ChannelShuffle|Residual)$"
)
# Calls that keep something: a running metric, statistics, a code book, a cache.
KEEPS = re.compile(
    r"metric|meter|evaluat|trainer|solver|accura|auroc|(^|_)f1|iou|wer$|fid$|psnr|ssim|quanti|observ|calib|codebook|code_book|running|track|momentum|"
    r"memory|queue|bank|buffer|cache|hook|record|captur|regist|normali[sz]er|_rms$|scheduler|sampler|tokeniz|processor|collat|"
    r"transform$|transforms$|logger|writer|profil|warm|bench|statistic|loader|dataset|env$|scaler|config|builder|factory|export|trace",
    re.I,
)
PREPARES = re.compile(
    r"^(__|get_(?!text|image|audio|embed)|load|create|build|make|init|set|add|save|wrap|unwrap|prepare|compile|register|to$)"
)
_HOST_WORK = frozenset(
    "imread imdecode decode_jpeg decode_image read_image pil_loader default_loader imresize warpAffine warpPerspective remap "
    "read_video batch_decode apply_chat_template get_frames_at get_batch resample stft melspectrogram mel_spectrogram mfcc "
    "distance_transform_edt gaussian_filter zoom GaussianBlur medianBlur bilateralFilter phonemize read_csv read_parquet "
    "get_fdata ReadImage".split()
)
_HOST_CALLS = re.compile(
    r"^(librosa|torchaudio|cv2|skimage|soundfile|scipy\.io\.wavfile|scipy\.ndimage|scipy\.signal|torchvision\.io|imageio|nibabel|SimpleITK|rasterio|decord)"
    r"(\.\w+)*\.(load|read|resize|resample|cvtColor|imread|read_image|rotate|zoom|stft|ReadImage|VideoReader|undistort|remap|warpAffine|"
    r"warpPerspective|GaussianBlur|dilate|erode|findContours|connectedComponents|melspectrogram|mfcc|resample_poly|filtfilt)$"
    r"|^numpy\.(load|loadtxt|genfromtxt)$|^torch\.load$"
)
_GRADIENTS = frozenset(
    {"torch.autograd.grad", "torch.autograd.functional.jacobian", "torch.autograd.functional.hessian"}
)


@dataclass(frozen=True, slots=True)
class Work:
    """One expensive call.

    kind: "network", "gradient", "host" (decoding and the like, of one sample). `proven`: what it runs is seen, not only its name.
    `light`: it makes token ids of a text, which costs little.
    """

    call: ast.Call
    kind: str
    proven: bool
    light: bool = False


def own_work(call: ast.Call, file: SourceFile) -> Work | None:
    """The work of the call itself, by what is called; functions of the repository are not looked into."""
    func, name = call.func, called_name(call)
    qualified = file.imports.qualified(func)
    if qualified in _GRADIENTS:
        return Work(call, "gradient", True)
    if _is_host_work(call, qualified):
        return Work(call, "host", True, name in ("tokenizer", "encode", "tokenize"))
    if qualified or PREPARES.search(name) or not (call.args or call.keywords):
        return None
    receiver = func.value if isinstance(func, ast.Attribute) and RUNS.search(func.attr) else func
    while isinstance(receiver, ast.Subscript):
        receiver = receiver.value
    if not isinstance(receiver, (ast.Name, ast.Attribute)):
        return None
    made = maker(receiver, file)
    if LIGHT.search(made) or KEEPS.search(made):
        return None
    if made and (is_module_call(call, file) or _is_module(receiver, file)):
        return None if made in file.once(_keeping_classes) else Work(call, "network", True)
    leaf = last_name(receiver)
    if leaf == "self" or KEEPS.search(leaf) or _is_class_name(leaf):
        return None
    if file.calls.resolve(call) is not None and receiver is func:
        return None  # a function of this file: what it does decides
    if _NETWORK.search(leaf) and file.values.of(receiver).kind in ("", "module", "tensor"):
        return Work(call, "network", False)
    return None


def _is_class_name(name: str) -> bool:
    """Does the call make an object: `Model(...)`, not `G(...)`, `CLIP(...)`?"""
    return name[:1].isupper() and not name.isupper() and "_" not in name and len(name) > 2


def _is_host_work(call: ast.Call, qualified: str) -> bool:
    """Does it decode, tokenise or transform a sample on the host?"""
    func, name = call.func, called_name(call)
    if name in _HOST_WORK or _HOST_CALLS.search(qualified):
        return True
    if name == "convert" and len(call.args) == 1 and isinstance(call.args[0], ast.Constant) and not qualified:
        return True  # of a PIL image, which is decoded only then
    if not isinstance(func, ast.Attribute):
        return name == "tokenizer"
    on = last_name(func.value).lower()
    return name == "tokenizer" or name in ("decode", "encode", "tokenize") and "tokenizer" in on


def maker(receiver: ast.expr, file: SourceFile) -> str:
    """The class that the attribute of `self`, or the local name, is made of; "" where that is not seen."""
    value: ast.expr | None = None
    if isinstance(receiver, ast.Attribute) and is_self(receiver):
        cls = file.index.class_of(receiver)
        value = file.bindings.attribute(cls, receiver.attr) if cls is not None else None
    elif isinstance(receiver, ast.Name):
        binding = file.bindings.last_before(receiver)
        if binding is not None and binding.kind == "item" and isinstance(binding.value, ast.Attribute):
            return maker(binding.value, file)
        value = binding.value if binding is not None and binding.kind == "assign" else None
    made = first_call(value)
    name = called_name(made) if isinstance(made, ast.Call) else ""
    return name if name[:1].isupper() else ""


def _is_module(receiver: ast.expr, file: SourceFile) -> bool:
    """Is the attribute of a module, which a class made, or an element of a list of modules?"""
    if isinstance(receiver, ast.Name):
        binding = file.bindings.last_before(receiver)
        if binding is not None and binding.kind == "item" and isinstance(binding.value, ast.Attribute):
            return file.values.is_a(binding.value, "module")
        return file.values.is_a(receiver, "module")
    cls = file.index.class_of(receiver)
    return is_self(receiver) and cls is not None and file.context.is_module(cls)


def _keeping_classes(file: SourceFile) -> frozenset[str]:
    """The classes of the file that keep something on themselves when they run."""
    return frozenset(
        cls.name
        for cls in file.index.of_type(ast.ClassDef)
        if any(
            key.startswith("self.")
            for method in cls.body
            if isinstance(method, (ast.FunctionDef, ast.AsyncFunctionDef)) and method.name != "__init__"
            for key in changes(method, file).at
        )
    )
