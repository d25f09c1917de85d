from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from typing import ClassVar

from ptopt.project.facts import Pin, ProjectFacts
from ptopt.rules.base import Invalid, Problem, Rule, SourceFile
from ptopt.rules.code import has_unpacking, quote
from ptopt.source.calls import last_name

_LARGE = re.compile(
    r"CausalLM|Seq2SeqLM|ConditionalGeneration|Vision2Seq|ImageTextToText|Pipeline$|Transformer\w*Model|UNet2D|UNet3D|Llama|Qwen|Mistral|Gemma|Mixtral|T5Encoder|GPTJ|GPTNeo|OPTFor|BloomFor|FalconFor"
)
_GIVEN = re.compile(r"dtype|load_in|quantization|variant|low_bit|torch_type|config_8bit|bits")
_TRAINS = re.compile(
    r"\bTrainer\b|optim\.|AdamW|TrainingArguments|\.backward\(|SFTTrainer|get_peft_model|Seq2SeqTrainer|training_step"
)
_HALVED = re.compile(r"\.half\(\)|\.bfloat16\(\)|\.to\([^)]*(dtype|float16)|set_default_dtype|autocast")

_DIFFUSERS = re.compile(r"diffusers|Pipeline|UNet")


def _reads_type(file: SourceFile) -> bool:
    """Does transformers take the type that the weights have? Since 5.0; an unknown version counts as a current one."""
    return file.facts.at_least("transformers", "5.0") is not False


class PretrainedInFullPrecision(Rule):
    """A large pretrained model is loaded in float32 for inference.

    ## What it does
    Finds `from_pretrained` of a language model or diffusion pipeline without a data type, in a file that runs it on a GPU and does
    not train it.

    ## Why it is slow
    Without `torch_dtype`, Diffusers and Transformers before 5.0 make float32 weights, whatever the file holds: twice the memory of
    the published half-precision weights, on the host while they load and on the GPU for good, and slower matrix products.

    ## When this is wrong
    When the model is small, its quality needs float32, or the project runs Transformers 5, which takes the type of the file.

    ## Fix safety
    There is no fix: results in half precision differ in the last digits.

    ## Sources
    - [Transformers: loading models](https://huggingface.co/docs/transformers/models#model-data-type)
    """

    id = "PTO891"
    name = "pretrained-in-full-precision"
    family = "memory"
    most_stated = 0.35
    libraries = ("transformers", "diffusers")
    since: ClassVar[Mapping[str, str]] = {"transformers": "4.9"}
    nodes = (ast.Call,)
    calls = frozenset({"from_pretrained"})
    requires = ("cuda", "device", "gpu")
    when_wrong = "the model is small, or needs float32"

    PROJECT = ProjectFacts({"transformers": (Pin("transformers", ">=4.40", False, "requirements.txt", 3),)})

    VALID = (
        """
        from transformers import LlamaTokenizer, T5EncoderModel

        tokenizer = LlamaTokenizer.from_pretrained(path)
        encoder = T5EncoderModel.from_pretrained(path, torch_dtype=torch.bfloat16)
        """,
        """
        from transformers import AutoModelForCausalLM
        model = AutoModelForCausalLM.from_pretrained(path, torch_dtype="auto").to("cuda")
        """,
        """
        from transformers import AutoModelForCausalLM, Trainer
        model = AutoModelForCausalLM.from_pretrained(path).to("cuda")
        Trainer(model=model).train()
        """,
        """
        from transformers import AutoTokenizer
        tokenizer = AutoTokenizer.from_pretrained(path)
        inputs = tokenizer("a").to("cuda")
        """,
    )
    INVALID = (
        Invalid("""
            from transformers import AutoModelForCausalLM
            model = AutoModelForCausalLM.from_pretrained(path).to("cuda")  # !
            # ~ model = AutoModelForCausalLM.from_pretrained(path, torch_dtype="auto").to("cuda")
        """),
        Invalid("""
            from diffusers import StableDiffusionPipeline
            pipe = StableDiffusionPipeline.from_pretrained("model")  # !
            pipe.to("cuda")
        """),
        Invalid("""
            import transformers
            class Judge:
                def __init__(self, name, device):
                    self.model = transformers.AutoModelForCausalLM.from_pretrained(name, device_map="auto")  # !
                    self.device = device
        """),
    )

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or has_unpacking(node):
            return
        name = last_name(node.func.value)
        if (
            not _LARGE.search(name)
            or re.search(
                r"GPTQ|AWQ|INC|OV|ORT|Quant|Tokenizer|Processor|Config$|FeatureExtractor|Scheduler", name
            )
            or any(_GIVEN.search(k.arg or "") for k in node.keywords)
        ):
            return
        if not _DIFFUSERS.search(f"{file.imports.qualified(node.func.value)}.{name}") and _reads_type(file):
            return
        if file.search(_TRAINS) or _HALVED.search(file.source(file.index.statement_of(node))):
            return
        yield Problem(
            node,
            f"{quote(file, node, 50)} names no data type, so that the weights become float32 (Transformers before 5.0, and Diffusers), twice the memory of half "
            'precision. Pass `torch_dtype="auto"` (or `torch.bfloat16`).',
            0.35,
            cause=node,
            subject=node,
            facts={
                "halved_elsewhere": bool(file.search(_HALVED)),
                "device_map": any(k.arg == "device_map" for k in node.keywords),
            },
        )
