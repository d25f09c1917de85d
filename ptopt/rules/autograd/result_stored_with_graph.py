from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ptopt.rules.autograd._carriers import is_cut
from ptopt.rules.autograd._stored import (
    backpropagated,
    hook_values,
    parts_of,
    put_on_self,
    read_by_forward,
    stored_name,
    stored_value,
)
from ptopt.rules.base import Edit, Evidence, Fix, Invalid, Problem, Rule, Safety, SourceFile
from ptopt.rules.code import quote

_RECORD = re.compile(
    r"record|hist|(^|[._])last_|(^|[._])prev|log|trace|saved|stored|collect|visual|debug|monitor|stat|dump|attn_?(map|weight|prob|score)|attention_?(map|weight|prob|score)"
    r"|activation|feature_?map|feats?_|results?$|outputs_list|res$",
    re.I,
)
_WITHOUT_GRAD = re.compile(
    r"(^|_)(test|eval|evaluate|infer|inference|predict|validate|visuali[sz]e)(_|$)", re.I
)
_LOSS = re.compile(
    r"state_dict|(^|_)sd$|params?$|loss|reg|penalty|aux|kl|log_?prob|log_?det|logits?$|entropy|value", re.I
)


class ResultStoredWithGraph(Rule):
    """A tensor is stored for later without being detached.

    ## What it does
    Finds a forward hook that stores its module's output or input, and attention maps, features or records that are put into an
    attribute, list or dictionary as they are, or as `x.cpu()`, in code that runs with autograd on.

    ## Why it is slow
    The stored tensor refers to its graph, and the graph to every activation that backward would need. As long as the record is
    kept, so is all of that, on the device; `.cpu()` moves the values, not the graph.

    ## Fix safety
    Unsafe: a loss that is computed from the stored tensor would lose its gradient.

    ## Sources
    - [PyTorch FAQ: my model reports out of memory](https://docs.pytorch.org/docs/stable/notes/faq.html)
    """

    id = "PTO581"
    name = "result-stored-with-graph"
    family = "autograd"
    most_stated = 0.4
    triggers = ("append(", "] =", "self.", "{")
    nodes = (ast.Call, ast.Assign)
    when_wrong = "a loss is computed from what is stored, or all callers turn autograd off"

    VALID = (
        """
        def hook(module, inputs, output):
            activations[name] = output.detach()
        layer.register_forward_hook(hook)
        """,
        """
        class Layer(nn.Module):
            def forward(self, x):
                self.aux_loss = x.mean()
                return x
        """,
        """
        @torch.no_grad()
        def collect(model, loader):
            for x in loader:
                results.append(model(x).cpu())
        """,
        """
        class Field(nn.Module):
            def forward(self, x):
                density = torch.relu(self.net(x))
                self.last_density = density
                return density.exp()

            def normals(self, positions):
                self.last_density.backward(torch.ones_like(self.last_density), inputs=positions)
                return positions.grad
        """,
        """
        def features(model, x):
            found = {}

            def hook(module, inputs, output):
                found["last"] = output

            model.layer.register_forward_hook(hook)
            with torch.no_grad():
                model(x)
            return found["last"]
        """,
        """
        class Core(nn.Module):
            def attach(self, network):
                network.stem.register_forward_hook(keep("stem", self.bank))

            def forward(self, x):
                self.network(x)
                return self.head(self.bank["stem"])

        def keep(name, bank):
            def hook(module, inputs, output):
                bank[name] = output
            return hook
        """,
        """
        class Planner(nn.Module):
            def simple_test(self, x):
                bbox_result = dict()
                trajectory = torch.relu(self.head(x))
                bbox_result["trajectory"] = trajectory.cpu()
                return bbox_result
        """,
        """
        class Cache:
            attention_mask: Int[torch.Tensor, "batch before"]

            def append(self, attention_mask: Int[torch.Tensor, "batch new"]):
                updated_attention_mask = torch.cat([self.attention_mask, attention_mask], dim=-1)
                self.attention_mask = updated_attention_mask
                return updated_attention_mask
        """,
    )
    INVALID = (
        Invalid("""
            def hook(module, inputs, output):
                activations[name] = output  # !
                # + activations[name] = output.detach()
            layer.register_forward_hook(hook)
        """),
        Invalid("""
            class Recorder(nn.Module):
                def record(self, attn: torch.Tensor):
                    self.recordings.append(attn.cpu())  # !
                    # + self.recordings.append(attn.detach().cpu())
        """),
        Invalid("""
            class Attention(nn.Module):
                def forward(self, q, k, v):
                    weights = torch.softmax(q @ k.transpose(-2, -1), -1)
                    self.attn_weights = weights  # !
                    # + self.attn_weights = weights.detach()
                    return weights @ v
        """),
    )

    def candidates(self, file: SourceFile) -> list[ast.AST]:
        stores = (*file.calls_named("append"), *file.index.of_type(ast.Assign))
        return [node for node in stores if stored_value(node) is not None]

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        stored = stored_value(node)
        function = file.index.function_of(node)
        if stored is None or function is None or function.name in ("__init__", "update"):
            return
        container, value = stored
        # The cheap checks first: where autograd is off may take other files to find out.
        if all(stored_name(part) is None or is_cut(part) for part in parts_of(value)):
            return
        if _WITHOUT_GRAD.search(function.name) or backpropagated(container, file):
            return
        if (
            file.context.grad_off(node)
            or file.context.trains(function)
            or read_by_forward(container, function, file)
        ):
            return
        path = file.source(container)
        hook = hook_values(function, file)
        for part in parts_of(value):
            base = stored_name(part)
            if base is None or is_cut(part) or _LOSS.search(path) or _LOSS.search(base.id):
                continue
            hooked = base.id in hook
            copied = part is not base
            recorded = _RECORD.search(path) is not None
            on_self = path.startswith("self.")
            local = isinstance(container, ast.Name) and bool(file.bindings.of(function, container.id))
            if not hooked and (
                not _carries(base, copied, file)
                or not (
                    on_self
                    and recorded
                    or copied
                    and (recorded or local and put_on_self(path, function, file))
                )
            ):
                continue
            if local and not copied and not hooked:
                continue
            end = file.bounds(base)[1]
            yield Problem(
                node,
                f"{quote(file, part, 40)} is stored in `{path}` with its autograd graph, and every activation that backward would need stays "
                f"allocated as long as it is kept. Store `{base.id}.detach(){file.source(part)[len(base.id) :] if copied else ''}`, unless a loss is computed from it.",
                0.4 if hooked or copied else 0.35,
                (Evidence(function.lineno, "a forward hook"),) if hooked else (),
                Fix(
                    Safety.UNSAFE,
                    (Edit(end, end, ".detach()"),),
                    f"no loss is computed from what `{path}` holds",
                ),
                cause=node,
                subject=base,
                facts={
                    "hook": hooked,
                    "to_host": copied,
                    "on_self": on_self,
                    "recorded": recorded,
                    "grows": isinstance(node, ast.Call),
                },
            )
            return


def _carries(name: ast.Name, copied: bool, file: SourceFile) -> bool:
    value = file.values.of(name)
    return value.graph is not False and (value.kind == "tensor" or copied and not value.kind)
