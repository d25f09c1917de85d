"""Which scripts train, and with which framework."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ptopt.audit.evaluate import DEFAULT_OF, Evaluator
from ptopt.audit.live import Live
from ptopt.audit.modules import Module, Modules, dotted_name, qualified, text_of
from ptopt.audit.offered import is_offered
from ptopt.audit.options import Options
from ptopt.audit.summaries import automain
from ptopt.pathkind import is_notebook, path_kind
from ptopt.source.calls import last_name
from ptopt.source.index import FUNCTIONS, FunctionNode, is_main_test

MOST_CANDIDATES = 120
_TRAINING_NAME = re.compile(r"train|finetune|fine_tune|main|run|sft|dpo|ppo|grpo|fit")
# What a script calls at its top to do its work, `trainer.train()`; a module that is imported calls other things there.
_WORK = r"(?:train|fine_?tune|fit|run|main|learn|launch|start|Fire)\w*"
_DOES_WORK = re.compile(rf"{_WORK}$")
_PARSES = ("parse_args", "parse_known_args")
_MAIN = re.compile(
    rf"__name__\s*==|^@\w+\.automain\b|^(?:for|while|with|trainer|main|train|app|cli|fire|run)\b|^(?:try:\s+)?[\w)][\w.)\] =]*\b{_WORK}\("
    r"|^\w[\w, ]*=[^#\n]*\.parse_(?:known_)?args\(".encode(),
    re.M,
)
_STARTS_ONE = re.compile(rb"\.backward\(|\.(fit|train|learn)\(|[tT]rainer\b")
# Scripts that use what training made: what they import may hold a training, which they do not run.
_USES = re.compile(
    r"(^|_)(infer|inference|test|demo|predict|sample|export|eval|evaluate|convert|conversion|generate|extract|preprocess|unwrap|merge|"
    r"upload|download)(_|$)"
)
_SAYS_TRAINING = re.compile(r"(^|[_.])(pre)?train")
# Their trainers and learners have no step of torch.
_NO_NETWORKS = frozenset(
    {
        "torch",
        "sklearn",
        "xgboost",
        "lightgbm",
        "catboost",
        "tensorflow",
        "jax",
        "tokenizers",
        "sentencepiece",
        "gensim",
    }
)
_MOST_CHANGES = 3  # of one variable
_MOST_LOOPS = 12  # backward calls that are looked at
_TRAINER = re.compile(r"Trainer\w*$")
_LIGHTNING = frozenset({"lightning", "pytorch_lightning", "lightning_fabric"})
_BACKWARD = frozenset({"backward", "manual_backward"})
_FITS = frozenset({"fit", "LightningCLI"})
_NO_GRAPH = frozenset({"no_grad", "inference_mode"})
_STEPS = frozenset({"step", "optimizer_step", "run_backward"})
_SCALERS = frozenset(f"{of}{line}scaler" for of in ("", "loss", "grad", "amp") for line in ("", "_"))
_OF_FRAMEWORKS = frozenset({"Accelerator", "Fabric", "LightningLite", "initialize", "Booster", "Engine"})
_STARTS = frozenset({"train", "fit", "run", "learn", "fit_one_cycle", "fine_tune", "LightningCLI"})
# Methods that others call, whoever makes the object.
_CALLED_BY_OTHERS = re.compile(
    r"(__\w+__|on_\w+|\w*_step|forward\w*|(train|fit|run|main|step|loop|learn|update)(_((one_)?epoch|batch|loop|iter(ation)?))?)$"
)
# Frameworks whose own loop trains: name of the call that starts it -> package.
_FOREIGN = {
    "detectron2": "detectron2", "mmengine": "MMEngine", "mmcv": "MMCV", "fairseq": "fairseq", "composer": "Composer",
    "fastai": "fastai", "ultralytics": "Ultralytics", "skorch": "skorch", "catalyst": "Catalyst", "keras": "Keras",
    "sentence_transformers": "sentence-transformers", "setfit": "SetFit", "flair": "Flair", "nemo": "NeMo",
    "homura": "homura", "torchnet": "torchnet", "poutyne": "Poutyne", "unsloth": "Unsloth", "torchtune": "torchtune", "stable_baselines3": "Stable-Baselines3", "pytorch_tabular": "PyTorch Tabular",
}  # fmt: skip
_FOREIGN_TRAINER = re.compile(r"Trainer|Runner|[Ll]earner|Engine|YOLO|Model|SAC|PPO|DQN|from_cfg")
_MAY_TRAIN = re.compile(r"trainer|runner|learner|engine", re.I)
Start = tuple[str, Module, ast.Call]


def candidates(modules: Modules, scripts: frozenset[str]) -> list[str]:
    """Files that a user may start, those that look most like a training first, as many as are looked at.

    They have a main block or code at the top, or are named as console scripts. Where there are too many, those that
    start a training themselves are looked at first, and examples that are named for it before other code of the library.
    """
    found = [
        (_unlikely(path), path)
        for path, data in modules.files.items()
        if b"import" in data
        and path_kind(path) != "tests"
        and (path in scripts or is_notebook(path) or _MAIN.search(data))
    ]
    if len(found) > MOST_CANDIDATES:
        found.sort(
            key=lambda each: (
                _STARTS_ONE.search(modules.files[each[1]]) is None,
                is_notebook(each[1]),
                not _is_named_for_training(each[1]),
                each,
            )
        )
    else:
        found.sort()
    return [path for _, path in found][:MOST_CANDIDATES]


def _is_named_for_training(path: str) -> bool:
    return bool(_TRAINING_NAME.search(path.rpartition("/")[2].lower()))


def _unlikely(path: str) -> int:
    likely = _is_named_for_training(path)
    if not likely and _is_named_for_use(path):
        return 3 + 4 * is_notebook(path)  # after the trainings among the examples
    return 2 * (path_kind(path) is not None) + (not likely) + 4 * is_notebook(path)


def only_uses(live: Live, start: Start) -> bool:
    """Is the script named like one that does not train, and does the training stand elsewhere, where its own code does not call it?"""
    path = live.start.path
    return start[1].path != path and _is_named_for_use(path) and not _calls_training(live, start)


def _calls_training(live: Live, start: Start) -> bool:
    """`step.train_cam.run(args)` of a script `run_sample.py`: it calls the very function, and the call says that it trains."""
    _, module, call = start
    function = live.outermost(module, call)
    if function is None or isinstance(module.file.index.parent(function), ast.ClassDef):
        return False
    for other, site in live.sites.get(function):
        parent = other.file.index.parent(site)
        called = other is live.start and isinstance(parent, ast.Call) and parent.func is site
        if called and _SAYS_TRAINING.search(text_of(site).lower()):
            return True
    return False


def may_train(live: Live) -> str:
    """Of a script in which no training was found: why one may have been missed; "" where nothing says so."""
    for module, call in live.calls_of(_STARTS - {"run"}):
        receiver = call.func.value if isinstance(call.func, ast.Attribute) else None
        made = _bound_call(module, receiver) if receiver is not None else None
        made = receiver if isinstance(receiver, ast.Call) else made
        origin = module.imported.get(dotted_name(made.func).partition(".")[0]) if made is not None else None
        if made is None or origin is None or origin[0]:
            continue
        package, _, cls = qualified(module, made.func).partition(".")
        known = package in _FOREIGN or package in _NO_NETWORKS or live.modules.is_ours(package, module.path)
        if not known and _MAY_TRAIN.search(cls):
            return f"`{cls.rpartition('.')[2]}` of {package} may train, which ptopt does not know"
    named = _TRAINING_NAME.search(live.start.path.rpartition("/")[2].lower())
    if live.dynamic and named and "torch" in live.packages():
        module, node = live.dynamic[0]
        line = module.file.head_line(getattr(node, "lineno", 1))
        return f"no training in what was followed, but code is found by name at {module.path}:{line}"
    return ""


def _is_named_for_use(path: str) -> bool:
    return bool(_USES.search(path.rpartition("/")[2].rpartition(".")[0].lower()))


def main_line(module: Module) -> int:
    """The line of the main block; 1 where the file has none."""
    for statement in module.file.tree.body:
        if isinstance(statement, ast.If) and is_main_test(statement.test):
            return module.file.head_line(statement.lineno)
    main = automain(module.file.tree)
    return 1 if main is None else module.file.head_line(main.lineno)


def starts_something(module: Module) -> bool:
    """Does the file do something when it is started: a main block, or calls and loops at the top?"""
    if module.file.is_notebook:
        return True
    return automain(module.file.tree) is not None or any(
        (isinstance(s, ast.If) and is_main_test(s.test))
        or isinstance(s, (ast.For, ast.While, ast.With))
        or (isinstance(s, ast.Expr) and isinstance(s.value, ast.Call) and isinstance(s.value.func, ast.Name))
        or _does_work(s)
        or _reads_command(s)
        for s in module.file.tree.body
    )


def _reads_command(statement: ast.stmt) -> bool:
    """`args = parser.parse_args()`: only a script reads a command at its top, whatever it does then, as under `if not args.test:`."""
    return (
        isinstance(statement, ast.Assign)
        and isinstance(statement.value, ast.Call)
        and last_name(statement.value.func) in _PARSES
    )


def _does_work(statement: ast.stmt) -> bool:
    """`trainer.train()`, `history = model.fit(data)`, also within `try`."""
    if isinstance(statement, ast.Try):
        return any(_does_work(inner) for inner in statement.body)
    if not isinstance(statement, (ast.Expr, ast.Assign, ast.AnnAssign)):
        return False
    call = statement.value.value if isinstance(statement.value, ast.Await) else statement.value
    return isinstance(call, ast.Call) and _DOES_WORK.match(last_name(call.func)) is not None


def training_start(live: Live, evaluator: Evaluator) -> Start | None:
    """The framework, and the call that trains: of a trainer, or the backward call of a loop; None where nothing trains.

    `evaluator`: knows what runs.
    """
    found = [
        (framework, module, call)
        for framework, module, call in live.once(_reached_starts)
        if evaluator.runs(call, module).truth is not False
    ]
    if not found:
        return None

    def rank(start: Start) -> tuple[bool, int]:
        """The script's own loop or trainer first, then the framework that hides most of it."""
        return start[1].path != live.start.path, _ORDER.get(start[0], 5)

    return min(found, key=rank)


def left_to_options(live: Live, evaluator: Evaluator) -> str:
    """Why nothing trains by default, where an option decides that: "default of `--mode`"; "" of other scripts."""
    notes = [evaluator.runs(call, module).note for _, module, call in live.once(_reached_starts)]
    return next((note for note in notes if note.startswith(DEFAULT_OF)), "")


def _reached_starts(live: Live) -> list[Start]:
    """What may train, whatever the options say."""
    return [
        (framework, module, call)
        for framework, module, call in _starts(live, live.packages())
        if not _infers(module, call)
        and not _waits_for_a_trainer(live, call)
        and _is_reached(live, module.file.index.function_of(call), module, set())
    ]


def _waits_for_a_trainer(live: Live, call: ast.Call) -> bool:
    """`self.manual_backward(loss)` where nothing fits the module: the script makes one, and Lightning trains it elsewhere."""
    return last_name(call.func) == "manual_backward" and not any(live.calls_of(_FITS))


def lone_step(live: Live, evaluator: Evaluator) -> tuple[Module, ast.Call] | None:
    """A step of an optimizer that the script takes, where no code of the repository has a backward pass: a package runs that."""
    name = live.start.path.rpartition("/")[2].lower()  # others show what a schedule does to a rate
    if not _TRAINING_NAME.search(name) or _is_named_for_use(live.start.path):
        return None
    if "torch" not in live.packages() or any(live.calls_of(_BACKWARD)):
        return None
    for module, call in live.calls_of(frozenset({"step"})):
        if (
            isinstance(call.func, ast.Attribute)
            and "optim" in text_of(call.func.value).lower()
            and evaluator.runs(call, module).truth is not False
            and _is_reached(live, module.file.index.function_of(call), module, set())
        ):
            return module, call
    return None


def _infers(module: Module, call: ast.Call) -> bool:
    """Does a function around the call record no graph? Then it steers what it makes by the gradient of an input."""
    function = module.file.index.function_of(call)
    while function is not None:
        for decorator in function.decorator_list:
            if last_name(decorator.func if isinstance(decorator, ast.Call) else decorator) in _NO_GRAPH:
                return True
        function = module.file.index.function_of(function)
    return False


def _is_reached(live: Live, function: FunctionNode | None, module: Module, seen: set[FunctionNode]) -> bool:
    """Does anything that runs name the method? What a class offers beside is not started by all who make an object of it."""
    if function is None or function in seen:
        return function is None
    seen.add(function)
    named_by_others = _CALLED_BY_OTHERS.match(function.name) is not None
    if not isinstance(module.file.index.parent(function), ast.ClassDef) or named_by_others or live.dynamic:
        return True
    if module is live.start and is_offered(module, function):
        return True
    return any(
        _is_reached(live, other.file.index.function_of(node), other, seen)
        for other, node in live.mentions.get(function.name)
    )


_ORDER = {
    "TRL": 0,
    "transformers": 0,
    "Lightning": 1,
    "DeepSpeed": 2,
    "Accelerate": 2,
    "Fabric": 2,
    "PyTorch": 3,
}


def _starts(live: Live, packages: frozenset[str]) -> Iterator[Start]:
    loops = [
        (module, call)
        for module, call in live.calls_of(_BACKWARD | _SCALERS)
        if (isinstance(call.func, ast.Attribute) and call.func.attr in _BACKWARD and _trains(module, call))
        or _scales(call)
    ]
    own = _own_framework(live, packages) if loops else ""
    if loops and (own in ("DeepSpeed", "Colossal-AI") or _steps(live)):
        for pair in sorted(loops, key=lambda pair: _distance(live, *pair))[:_MOST_LOOPS]:
            yield (own, *pair)
    for module, call in live.calls_of(_STARTS):
        name = call.func.attr if isinstance(call.func, ast.Attribute) else dotted_name(call.func)
        if name != "LightningCLI" and isinstance(call.func, ast.Attribute):
            framework = _framework_of(live, module, call.func.value)
            if framework == "Lightning" and name != "fit":
                continue
            if framework:
                yield framework, module, call
        elif name == "LightningCLI" and packages & _LIGHTNING:
            yield "Lightning", module, call


def _distance(live: Live, module: Module, call: ast.Call) -> tuple[bool, bool, int, str, int]:
    """The loop that a reader takes for that of the script comes first: a real loop, near the script, and the first of its file."""
    function = module.file.index.function_of(call)
    passes_on = function is not None and function.name == "backward"
    folders = 0 if module.path == live.start.path else 1 + len(_apart(live.start.path, module.path))
    return passes_on, module.file.context.training_step(call) is None, folders, module.path, call.lineno


def _apart(here: str, there: str) -> list[str]:
    ours, theirs = here.split("/")[:-1], there.split("/")[:-1]
    while ours and theirs and ours[0] == theirs[0]:
        ours, theirs = ours[1:], theirs[1:]
    return ours + theirs


def _scales(call: ast.Call) -> bool:
    """`loss_scaler(loss, optimizer, ...)`: the backward pass and the step in one call, as timm has it."""
    return (
        dotted_name(call.func).rpartition(".")[2] in _SCALERS
        and len(call.args) > 1
        and "optim" in text_of(call.args[1])
    )


def _steps(live: Live) -> bool:
    """Does anything take a step of an optimizer?"""
    return any(_is_step(*pair) or _scales(pair[1]) for pair in live.calls_of(_STEPS | _SCALERS))


def _is_step(module: Module, call: ast.Call) -> bool:
    func = call.func
    if not isinstance(func, ast.Attribute):
        return False
    if func.attr == "step":
        return module.file.context.is_training_mark(call) or "opt" in text_of(func.value).lower()
    return func.attr in _STEPS


def _trains(module: Module, call: ast.Call) -> bool:
    """Not `super().backward(...)`, not `Function.backward`, not a test of gradients."""
    return module.file.context.is_training_mark(call)


def _own_framework(live: Live, packages: frozenset[str]) -> str:
    """Of a loop of the repository: whose objects run its backward pass."""
    calls: dict[str, ast.expr] = {}
    for _, call in live.calls_of(_OF_FRAMEWORKS):
        func = call.func
        calls[func.attr if isinstance(func, ast.Attribute) else dotted_name(func)] = func
    if "basicsr" in packages:
        return "BasicSR"  # its loop runs the models of the repository
    if "accelerate" in packages and ("Accelerator" in calls or _has_receiver(live, "accelerator")):
        return "Accelerate"
    if packages & _LIGHTNING and (
        any(name in calls for name in ("Fabric", "LightningLite"))
        or any(text_of(base).endswith("LightningLite") for cls in live.classes for base in cls.bases)
    ):
        return "Fabric"
    if "deepspeed" in packages and dotted_name(calls.get("initialize", ast.Constant(""))).startswith(
        "deepspeed"
    ):
        return "DeepSpeed"
    if "colossalai" in packages and "Booster" in calls:  # XGBoost and LightGBM have a `Booster`, too
        return "Colossal-AI"
    if "ignite" in packages and "Engine" in calls:
        return "Ignite"
    return "PyTorch"


def _has_receiver(live: Live, name: str) -> bool:
    """Is a backward pass called on an object of this name, made where nobody looked?"""
    return any(
        isinstance(call.func, ast.Attribute)
        and call.func.attr == "backward"
        and text_of(call.func.value).rpartition(".")[2] == name
        for _, call in live.calls_of(_BACKWARD)
    )


def _framework_of(live: Live, module: Module, receiver: ast.expr, depth: int = 0) -> str:
    """Whose trainer the receiver of `.train()` or `.fit()` is; "" where it is none that is known."""
    call = receiver if isinstance(receiver, ast.Call) else _bound_call(module, receiver)
    for _ in range(_MOST_CHANGES):
        call = _made_before(module, call, receiver) or call
    annotated = _annotation(module, receiver)
    if annotated is not None and (found := _class_framework(live, module, annotated, depth)):
        return found
    if call is None:
        return ""
    if dotted_name(call.func).rpartition(".")[2] in ("instantiate", "instantiate_from_config"):
        fields = [
            o.default.value for o in live.once(Options).of("_target_") if isinstance(o.default, ast.Constant)
        ]
        made = [
            str(name)
            for name in (*(t.value for t in live.targets), *fields)
            if str(name).endswith(".Trainer")
        ]
        return "Lightning" if any(name.partition(".")[0] in _LIGHTNING for name in made) else ""
    return _class_framework(live, module, call.func, depth)


def _class_framework(live: Live, module: Module, cls: ast.expr, depth: int) -> str:
    name = dotted_name(cls)
    found = live.modules.resolve(module, name) if name else None
    if found is not None and isinstance(found[1], ast.ClassDef):
        if depth > 4:
            return ""
        return next(
            (f for base in found[1].bases if (f := _class_framework(live, found[0], base, depth + 1))), ""
        )
    if found is not None and isinstance(found[1], FUNCTIONS) and depth <= 4:
        return _made_by(live, found[0], found[1], depth + 1)
    if found is not None or depth > 4:
        return ""
    root = name.partition(".")[0]
    origin = (module.imported.get(root) or _star(live, module, root)) if name else None
    if origin is None:
        ways = _classes_held(module, cls)
        return next((f for way in ways if (f := _class_framework(live, module, way, depth + 1))), "")
    if origin[0]:
        return ""
    package = origin[1].partition(".")[0]
    last = name.rpartition(".")[2] if "." in name or not origin[2] else origin[2]
    if package == "trl" and _TRAINER.search(last):
        return "TRL"
    if package in ("transformers", "optimum", "adapters") and _TRAINER.search(last):
        return "transformers"
    if package in _LIGHTNING and last == "Trainer":
        return "Lightning"
    if package == "ignite":
        return "Ignite"
    if package in _FOREIGN and _FOREIGN_TRAINER.search(last):
        return _FOREIGN[package]
    return ""


def _made_by(live: Live, module: Module, function: FunctionNode, depth: int) -> str:
    """Whose trainer the function of the repository returns."""
    for answer in module.file.index.of_type(ast.Return):
        if answer.value is not None and module.file.index.function_of(answer) is function:
            framework = _framework_of(live, module, answer.value, depth)
            if framework:
                return framework
    return ""


def _star(live: Live, module: Module, name: str) -> tuple[int, str, str] | None:
    """The framework of which `from fastai.vision import *` may bring the name, which the module does not bind itself."""
    if module.file.bindings.of(None, name):
        return None
    packages = [origin for level, origin in module.stars if not level]
    known = [
        p for p in packages if p.partition(".")[0] in _FOREIGN and not live.modules.is_ours(p, module.path)
    ]
    return (0, known[0], name) if known else None


def _made_before(module: Module, call: ast.Call | None, receiver: ast.expr) -> ast.Call | None:
    """Of `learner = learner.to_distributed(rank)`: what made the learner before; None of others."""
    if call is None or call is receiver or not isinstance(receiver, ast.Name):
        return None
    root = call.func
    while isinstance(root, ast.Attribute):
        root = root.value
    return _bound_call(module, root) if isinstance(root, ast.Name) and root.id == receiver.id else None


def _classes_held(module: Module, cls: ast.expr) -> list[ast.expr]:
    """What an expression, of which a class is expected, may come to: `trainer_cls = Cached if cached else Trainer`."""
    if isinstance(cls, ast.IfExp):
        return [cls.body, cls.orelse]
    if isinstance(cls, ast.Dict):
        return cls.values
    if isinstance(cls, ast.Subscript):  # `TRAINERS[kind]`
        return [cls.value] if isinstance(cls.value, (ast.Name, ast.Dict)) else []
    if not isinstance(cls, ast.Name):
        return []
    scope = module.file.index.function_of(cls)
    found = module.file.bindings.of(scope, cls.id) or module.file.bindings.of(None, cls.id)
    return [b.value for b in found if b.kind == "assign" and b.value is not None]


def _annotation(module: Module, receiver: ast.expr) -> ast.expr | None:
    """`trainer: Trainer = make(...)`"""
    binding = module.file.bindings.last_before(receiver) if isinstance(receiver, ast.Name) else None
    if binding is not None and isinstance(binding.node, ast.AnnAssign):
        return binding.node.annotation
    return None


def _bound_call(module: Module, receiver: ast.expr) -> ast.Call | None:
    """The call whose result a name or an attribute of `self` holds."""
    value: ast.expr | None = None
    if isinstance(receiver, ast.Name):
        binding = module.file.bindings.last_before(receiver)
        value = binding.value if binding is not None and binding.kind == "assign" else None
        if binding is not None and isinstance(binding.node, ast.With):  # `with Trainer() as trainer:`
            held = (i for i in binding.node.items if text_of(i.optional_vars or i) == receiver.id)
            value = next((item.context_expr for item in held), None)
    elif isinstance(receiver, ast.Attribute):
        cls = module.file.index.class_of(receiver)
        value = module.file.bindings.attribute(cls, receiver.attr) if cls is not None else None
    if isinstance(value, ast.Await):
        value = value.value
    if isinstance(value, ast.Call):
        func = value.func
        if isinstance(func, ast.Attribute) and func.attr in ("from_argparse_args", "from_cfg", "from_config"):
            return ast.Call(func=func.value, args=[], keywords=[])
        return value
    return None
