from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ptopt.rules.base import TEXTBOOK, Edit, Fix, Invalid, Problem, Rule, Safety, SourceFile
from ptopt.rules.code import keyword_of, quote
from ptopt.source.bindings import is_self
from ptopt.source.calls import last_name
from ptopt.source.frequency import Often
from ptopt.source.index import FUNCTIONS, FunctionNode

_MOVES = frozenset(
    "to cuda cpu half float double bfloat16 int long short bool byte type type_as contiguous".split()
)
_COPIES = _MOVES | {"detach"}
# Methods of tensors that modules, batches of libraries and other classes with a `.to()` of their own have not.
_TELLING = frozenset(
    "unsqueeze masked_fill permute expand_as repeat_interleave index_select scatter_ masked_select topk bmm new_zeros new_ones "
    "new_full new_tensor log_softmax softmax numel size view dim transpose squeeze reshape flatten ndim sum mean max min argmax "
    "item tolist numpy expand repeat contiguous".split()
)
# `.to()` of these may work in place, whatever methods they have.
_OWN_TO = re.compile(
    r"^batch|batch(es)?$|^data|^td$|tensor_?dict|sample|graph|^obs|encoding|features|inputs|^tokens|report|packed|state|struct|instances|boxes|"
    r"model|net$|module|layer|encoder|decoder|vae|teacher|student|backbone|head|optim|criterion|metric|pipe|noise_scheduler|"
    r"embedder|finali[sz]er|cache",
    re.I,
)
_PROBES = re.compile(
    r"supports?|probe|health|(^|_)(init|check|test|warm\w*|can|has|is|try|verify|available)(_|$)", re.I
)


class CopyDropped(Rule):
    """The result of `.to()`, `.cuda()`, `.float()` or `.detach()` of a tensor is dropped.

    ## What it does
    Finds statements such as `x.to(device)` on tensors: by what the name was given, its annotation, or methods that only
    tensors have. Of a module these methods work in place; it is left alone.

    ## Why it is slow
    A tensor is not changed by these methods: they return another one. The copy is made and thrown away, and the tensor
    stays where it was, so that it is copied again where it is used, or has the wrong type.

    ## When this is wrong
    When it is no tensor but an object of a class whose method works in place.

    ## Fix safety
    Unsafe: code that follows gets the copy, of another device or type, for the first time.

    ## Sources
    - [PyTorch documentation: Tensor.to](https://docs.pytorch.org/docs/stable/generated/torch.Tensor.to.html)
    """

    id = "PTO237"
    name = "copy-dropped"
    family = "transfer"
    triggers = (
        ".to(",
        ".cuda(",
        ".cpu(",
        ".float(",
        ".half(",
        ".detach(",
        ".contiguous(",
        ".long(",
        ".type(",
    )
    nodes = (ast.Expr,)
    when_wrong = "it is no tensor: the method of a module or of a batch class works in place"

    VALID = (
        """
        model = Net()
        model.to(device)
        model.half()
        """,
        """
        def forward(self, x: torch.Tensor):
            x = x.to(self.device)
            return x.float()
        """,
        """
        for batch in loader:
            batch.to(device)
            loss = model(batch)
        """,
        """
        def is_supported(device):
            probe = torch.zeros(1)
            probe.to(device)
            return True
        """,
        """
        encoder = build_encoder()
        encoder.requires_grad_(False)
        encoder.to(device)
        """,
        """
        def start(self):
            torch.zeros(1).cuda()
        """,
    )
    INVALID = (
        Invalid("""
            def forward(self, x: torch.Tensor):
                x.cuda()  # !
                # + x = x.cuda()
                return self.conv(x)
        """),
        Invalid("""
            for image, label in loader:
                label = label.unsqueeze(1)
                label.float()  # !
                # + label = label.float()
                loss = criterion(model(image.to(device)), label)
                loss.backward()
        """),
        Invalid("""
            class Rotary(nn.Module):
                def __init__(self, dim):
                    super().__init__()
                    self.register_buffer("frequencies", torch.arange(dim))

                def forward(self, x):
                    self.frequencies.to(x.device)  # !
                    # + self.frequencies = self.frequencies.to(x.device)
                    return x * self.frequencies
        """),
        Invalid("""
            def training_step(self, batch):
                loss = F.mse_loss(self(batch[0]), batch[1])
                loss.detach()  # !
                return {"loss": loss}
        """),
    )

    def candidates(self, file: SourceFile) -> list[ast.AST]:
        statements = [file.index.parent(call) for name in _COPIES for call in file.calls_named(name)]
        return [statement for statement in statements if isinstance(statement, ast.Expr)]

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        call = node.value if isinstance(node, ast.Expr) else None
        if not isinstance(call, ast.Call) or last_name(call.func) not in _COPIES:
            return
        tensor = _copied(call)
        function = file.index.function_of(node)
        if tensor is None or keyword_of(call, "inplace") is not None or _is_probe(node, function, file):
            return
        named = last_name(tensor)
        if _OWN_TO.search(named) or file.source(tensor) in ("self", "cls"):
            return
        often = file.frequencies.of(node).often
        if not _is_tensor(tensor, function, file):
            return
        prior = 0.6 if Often.UNKNOWN < often <= Often.EPOCH else TEXTBOOK
        text = file.source(tensor)
        assigned = f"{text} = {quote(file, call, 80)[1:-1]}"
        method = last_name(call.func)
        kept = method == "detach" or (isinstance(tensor, ast.Attribute) and _is_parameter(tensor, file))
        advice = "Delete the line" if kept else f"Write `{assigned}`, or delete the line"
        yield Problem(
            node,
            f"{quote(file, call)} does not change `{text}`: it returns another tensor, and nothing takes it. {advice}.",
            prior,
            fix=_fix(call, tensor, file),
            subject=call,
            facts={"moves": method in ("to", "cuda", "cpu")},
        )


def _copied(call: ast.Call) -> ast.expr | None:
    """The name or attribute that a chain of copies starts with."""
    expr: ast.expr = call
    while isinstance(expr, ast.Call) and isinstance(expr.func, ast.Attribute) and expr.func.attr in _COPIES:
        expr = expr.func.value
    return expr if isinstance(expr, (ast.Name, ast.Attribute)) else None


def _is_probe(node: ast.AST, function: FunctionNode | None, file: SourceFile) -> bool:
    """Is the copy made to see whether it works, or to start the device?"""
    if function is not None and _PROBES.search(function.name) and function.name != "__init__":
        return True
    for ancestor, child in file.index.ancestors(node):
        if isinstance(ancestor, ast.Try) and child in ancestor.body and ancestor.handlers:
            return True
        if isinstance(ancestor, FUNCTIONS):
            return False
    return False


def _is_tensor(expr: ast.expr, function: FunctionNode | None, file: SourceFile) -> bool:
    """Is it surely a tensor?"""
    if not file.values.is_tensor(expr):
        return False
    if isinstance(expr, ast.Attribute):
        return is_self(expr)
    if not isinstance(expr, ast.Name):
        return False
    binding = file.bindings.last_before(expr)
    if binding is None:
        return False
    if binding.kind == "parameter" and binding.value is not None:
        return True  # annotated as one
    if not _TELLING.isdisjoint(file.once(_attributes_asked).get((function, expr.id), ())):
        return True
    return binding.kind == "assign" and binding.value is not None and _gives_tensor(binding.value, file)


def _gives_tensor(value: ast.expr, file: SourceFile) -> bool:
    """Does a function of torch, an operation, or a method that no module has give the value?"""
    if isinstance(value, ast.BinOp):
        return True
    if not isinstance(value, ast.Call):
        return False
    if file.imports.qualified(value.func).startswith("torch."):
        return True
    return isinstance(value.func, ast.Attribute) and value.func.attr in _TELLING


def _attributes_asked(file: SourceFile) -> dict[tuple[FunctionNode | None, str], set[str]]:
    """(function, name) -> the attributes that the function asks of it."""
    table: dict[tuple[FunctionNode | None, str], set[str]] = {}
    for attribute in file.index.of_type(ast.Attribute):
        if isinstance(attribute.value, ast.Name):
            key = (file.index.function_of(attribute), attribute.value.id)
            table.setdefault(key, set()).add(attribute.attr)
    return table


def _fix(call: ast.Call, tensor: ast.expr, file: SourceFile) -> Fix | None:
    """Assigns the copy, unless the loop that gives the name takes nothing back, or the attribute is a parameter."""
    if last_name(call.func) == "detach":
        return None
    if isinstance(tensor, ast.Name):
        binding = file.bindings.last_before(tensor)
        if binding is None or (binding.kind == "item" and not binding.path):
            return None  # the element of a list, which the loop does not give back
    if isinstance(tensor, ast.Attribute) and _is_parameter(tensor, file):
        return None
    start, _ = file.bounds(call)
    return Fix(
        Safety.UNSAFE,
        (Edit(start, start, f"{file.source(tensor)} = "),),
        "what follows works with the copy",
    )


def _is_parameter(tensor: ast.Attribute, file: SourceFile) -> bool:
    return (file.index.class_of(tensor), tensor.attr) in file.once(_parameters)


def _parameters(file: SourceFile) -> frozenset[tuple[ast.ClassDef | None, str]]:
    """The attributes of `self` that are parameters somewhere in their class."""
    return frozenset(
        (file.index.class_of(assign), target.attr)
        for assign in file.index.of_type(ast.Assign)
        if isinstance(assign.value, ast.Call) and last_name(assign.value.func) == "Parameter"
        for target in assign.targets
        if isinstance(target, ast.Attribute) and is_self(target)
    )
