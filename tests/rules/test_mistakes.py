"""Kinds of wrong comments that readers of real commits found: none of them is made, nor proposed, again."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping

import pytest

from ptopt.change import whole_file
from ptopt.config import Config
from ptopt.project.facts import NO_FACTS
from ptopt.review import review_files
from ptopt.rules import find_rule
from ptopt.rules.examples import as_file

STEP = """
for x, y in loader:
    loss = F.cross_entropy(model(x.to(device)), y.to(device))
    loss.backward()
    optimizer.step()
"""
MISTAKES = {
    "no_grad on training code": (
        "evaluation-records-graph",
        """
        def train(trainer, model, loader):
            model.eval()
            for x in loader:
                loss = trainer(model(x.cuda()))
                total += loss.item()
        """,
    ),
    "a graph that each iteration goes through again": (
        "graph-retained",
        """
        def jacobian(model, image):
            optimizer = torch.optim.SGD(model.parameters(), 0.1)
            output = model(image)
            for i in range(output.shape[1]):
                output[0][i].backward(retain_graph=True)
                optimizer.step()
        """,
    ),
    "a copy of what lies elsewhere": (
        "batch-copy-waits",
        """
        class Net(nn.Module):
            def loss_fn(self, logits: torch.Tensor, tokens: torch.Tensor):
                if logits.device != tokens.device:
                    tokens = tokens.to(logits.device)
                return F.cross_entropy(logits, tokens)
        """,
    ),
    "a graph of whole numbers": (
        "result-stored-with-graph",
        """
        class Masks:
            def append(self, mask: Int[torch.Tensor, "batch tokens"]):
                longer = torch.cat([mask, mask], dim=-1)
                self.previous_mask = longer
                return longer
        """,
    ),
    "a tensor without elements": (
        "factory-then-move",
        """
        class Net(nn.Module):
            def forward(self, x):
                found = [row for row in x if row.sum() > 0]
                return torch.stack(found) if found else torch.empty(0, x.shape[1]).to(x.device)
        """,
    ),
    "no_grad on what passes a differentiable result on": (
        "evaluation-records-graph",
        """
        class Transform:
            def evaluate(self, x):
                return self.model(x)
        """,
    ),
    "no_grad where volatile inputs turn recording off": (
        "evaluation-records-graph",
        """
        def test(model, loader):
            model.eval()
            for x in loader:
                total += model(Variable(x, volatile=True)).data.max()
        """,
    ),
    "no_grad on the model of another framework": (
        "evaluation-records-graph",
        """
        import numpy as np

        def embed_torch(documents, model):
            import torch

            with torch.inference_mode():
                return model(torch.tensor(documents)).numpy()

        def embed_paddle(documents, model):
            import paddle

            return model(paddle.Tensor(documents)).numpy()
        """,
    ),
    "no_grad in the class of another framework": (
        "evaluation-records-graph",
        """
        class MlxPlan(Plan):
            def validate_step(self, batches):
                self.module.eval()
                for batch in batches:
                    total += self.module(batch).loss.item()
        """,
    ),
    "no_grad around a helper that unpacks the batch": (
        "evaluation-records-graph",
        """
        def posterior(self, loader):
            self.module.eval()
            for tensors in loader:
                args, kwargs = self.module._get_fn_args_from_batch(tensors)
                found.append(self.sample(args).numpy())
        """,
    ),
    "autocast in a loss that fits something of its own": (
        "full-precision-training",
        """
        class ManifoldLoss(nn.Module):
            def forward(self, x):
                for _ in range(self.steps):
                    loss = self.net(x.cuda()).mean()
                    loss.backward()
                    self.optimizer.step()
                return loss
        """,
    ),
    "a batch that is counted before it is sent to the device": (
        "item-every-step",
        """
        def train(batches, model, optimizer, device):
            while True:
                batch = next(batches)
                seen += batch["input_ids"].ne(0).sum().item()
                batch = {k: v.to(device) for k, v in batch.items()}
                model(**batch).loss.backward()
                optimizer.step()
        """,
    ),
    "a loss that is read every so many steps, or at the end": (
        "item-every-step",
        """
        for x, y in loader:
            loss = F.cross_entropy(model(x.to(device)), y.to(device))
            loss.backward()
            optimizer.step()
            if log_every > 0 and (stop_now or step % log_every == 0):
                history.append(loss.item())
        """,
    ),
    "labels to shift where there is no loss": (
        "shifted-logits-copied",
        """
        def choices(self, tokens, target_ids, choice_ids):
            outputs = self.model(tokens)
            logits = outputs[..., :-1, :].contiguous()
            return F.log_softmax(logits, dim=-1)[target_ids, choice_ids]
        """,
    ),
    "workers for a loop that has nothing to overlap with": (
        "loader-without-workers",
        """
        class Images(Dataset):
            def __getitem__(self, i):
                return self.transform(Image.open(self.paths[i]).convert("RGB"))

        def references(paths):
            found = torch.empty(0)
            loader = DataLoader(Images(paths), batch_size=1)
            for batch in loader:
                found = torch.cat((found, batch))
            return found
        """,
    ),
    "eval of another library": (
        "evaluation-records-graph",
        """
        def convert(source):
            weight = source.value().eval()
            return {"weight": weight.transpose((3, 2, 0, 1)).item()}
        """,
    ),
    "a streamer, which generate drives": (
        "evaluation-records-graph",
        """
        class AudioStreamer(BaseStreamer):
            def apply(self, ids):
                out = self.audio_encoder.decode(ids)
                return out.cpu().numpy()
        """,
    ),
    "an invariant that the loop fills": (
        "invariant-read-in-loop",
        """
        values = torch.zeros(8, device=device)
        for step in range(8):
            values[step] = model(x)
            print(values.mean().item())
        """,
    ),
    "a value on the host: NumPy": (
        "host-copy-every-step",
        """
        class Embedder:
            def __call__(self, image: torch.Tensor) -> torch.Tensor:
                return torch.from_numpy(canny(image.numpy()))
        """,
    ),
    "a value on the host: copied before": (
        "item-every-step",
        """
        def check(logits: torch.Tensor, outputs, answers, device):
            outputs = outputs[0, -3:].cpu()
            return (outputs == answers[0]).all().item()
        """,
    ),
    "a value on the host: an item of a data set": (
        "index-by-python-list",
        """
        class Images(VisionDataset):
            def crop(self, image: torch.Tensor):
                return image[[3, 2, 1]].permute(1, 2, 0)
        """,
    ),
    "a value on the host: moved by the caller": (
        "host-index",
        """
        def mixup(x: torch.Tensor):
            indices = torch.randperm(x.size(0))
            return x[indices]

        for x in loader:
            x = mixup(x)
            x = x.to(device)
            model(x).mean().backward()
            optimizer.step()
        """,
    ),
    "what takes host memory alone": (
        "host-copy-every-step",
        """
        class Decoder(nn.Module):
            def forward(self, x, lengths):
                packed = pack_padded_sequence(x, lengths.detach().cpu())
                return self.rnn(packed)
        """,
    ),
    "a way around what the device cannot do": (
        "host-copy-every-step",
        """
        def gamma(concentration: torch.Tensor):
            if concentration.is_cuda:
                return concentration.cpu()._standard_gamma().cuda()
            return concentration._standard_gamma()
        """,
    ),
    "no tensor: a flag": (
        "branch-on-tensor",
        """
        class Layer(nn.Module):
            def forward(self, x):
                if torch.is_autocast_enabled():
                    x = x.half()
                return self.linear(x)
        """,
    ),
    "no tensor yet": (
        "python-reduction-over-tensor",
        """
        def pitch(wav, device):
            f0 = compute(wav)
            if sum(f0) == 0:
                raise ValueError
            f0 = torch.FloatTensor(f0).to(device)
            return f0.unsqueeze(0)
        """,
    ),
    "a size": (
        "tensor-as-python-number",
        """
        def constraints(indices: torch.Tensor, shape: torch.Size):
            offsets = shape.numel()
            for i in range(shape[0]):
                yield indices + i * offsets
        """,
    ),
    "dead code": (
        "item-every-step",
        f"if False:{STEP.replace(chr(10), chr(10) + '    ')}    total += loss.item()\n",
    ),
    "batching of lists": (
        "slice-loop",
        """
        class FeatureLoss(nn.Module):
            def forward(self, x, y):
                fake, real = self.vgg(x), self.vgg(y)
                total = torch.zeros(1)
                for i in range(len(fake)):
                    for j in range(len(fake[i])):
                        total += self.criterion(fake[i][j], real[i][j].detach())
                return total
        """,
    ),
    "batching of what isinstance finds to be a list": (
        "slice-loop",
        """
        def repeat(hidden, n):
            if isinstance(hidden, tuple):
                out = []
                for i in range(hidden[0].size(0)):
                    out.append(hidden[i].unsqueeze(2).repeat(1, 1, n, 1))
                return torch.stack(out)
        """,
    ),
    "batching of slices of unequal size": (
        "slice-loop",
        """
        def indices(start: torch.Tensor, lengths):
            return torch.cat([first + torch.arange(n) for first, n in zip(start, lengths)])
        """,
    ),
    "batching of blocks": (
        "slice-loop",
        """
        def perplexity(model, ids: torch.Tensor, n):
            losses = []
            for i in range(ids.numel() // n):
                losses.append(F.cross_entropy(ids[:, i * n : (i + 1) * n].float(), ids[:, 0]))
            return torch.stack(losses)
        """,
    ),
    "a name that gets another value in the statement that reads it": (
        "repeated-expression",
        """
        def normalise(value: torch.Tensor, actions: torch.Tensor):
            score = torch.exp(value)
            score = score / score.sum(0)
            mean = (score * actions).sum(1) / (score.sum(0) + 1e-9)
            return mean
        """,
    ),
    "a loop that ends when nothing is left": (
        "size-read-from-device",
        """
        def suppress(left: torch.Tensor, overlap):
            while left.numel() > 0:
                left = left[left > overlap]
        """,
    ),
    "a wait that measures": (
        "synchronize-every-step",
        """
        for x in loader:
            start.record()
            model(x.cuda()).mean().backward()
            optimizer.step()
            end.record()
            torch.cuda.synchronize()
            times.append(start.elapsed_time(end))
        """,
    ),
    "a wait for what one process does": (
        "synchronize-every-step",
        """
        for split in splits:
            model(split.cuda()).mean().backward()
            optimizer.step()
            if accelerator.is_main_process:
                save(split)
            accelerator.wait_for_everyone()
        """,
    ),
    "pinning of batches that go nowhere": (
        "loader-without-pinning",
        """
        loader = DataLoader(dataset, batch_size=4, num_workers=2)
        for batch in loader:
            count += 1
        device = "cuda"
        """,
    ),
    "workers for items on the device": (
        "loader-without-workers",
        "loader = DataLoader(Series(frames, device), batch_size=4)\nfor batch in loader:\n    model(batch)\n",
    ),
    "a wrapper that is not used for training": (
        "data-parallel",
        """
        def load_model(path):
            model = torch.nn.DataParallel(build()).cuda()
            model.load_state_dict(torch.load(path))
            return model
        """,
    ),
    "a single number of an array": (
        "array-copied-into-tensor",
        """
        class Energies(Dataset):
            def __init__(self, path):
                self.energies = np.load(path)

            def __getitem__(self, index):
                return torch.tensor(self.energies[index])
        """,
    ),
    "attention whose scores are set by index": (
        "attention-by-hand",
        """
        def attend(q, k, v, t):
            dots = torch.einsum("bie,bje->bij", q, k) * 0.125
            dots[:, range(t), range(t)] = -1e4
            dots = dots.softmax(dim=-1)
            return torch.einsum("bij,bje->bie", dots, v)
        """,
    ),
    "a compiled function, whose kernels are merged": (
        "element-loop",
        """
        @torch.compile
        def squash(x: torch.Tensor):
            out = torch.zeros_like(x)
            for i in range(len(x)):
                out[i] = torch.sigmoid(x[i]) * 2 - 1
            return out
        """,
    ),
    "a scatter to places that the data name": (
        "element-loop",
        """
        def add_up(losses: torch.Tensor, domains: torch.Tensor):
            totals = torch.zeros(9)
            for i in range(len(losses)):
                totals[domains[i]] += losses[i]
            return totals
        """,
    ),
    "a multiplicative mask, which is no scale": (
        "attention-by-hand",
        """
        def attend(q, k, v, attention_mask):
            scores = torch.matmul(q, k.transpose(-1, -2)) * attention_mask
            weights = torch.softmax(scores, dim=-1)
            return torch.matmul(weights, v)
        """,
    ),
    "sampling that returns early on most steps": (
        "cache-cleared-every-step",
        """
        def sample_images(args, epoch, steps):
            if steps == 0:
                if not args.sample_at_first:
                    return
            else:
                if args.every_n_epochs is not None:
                    if epoch is None or epoch % args.every_n_epochs != 0:
                        return
                elif steps % args.every_n_steps != 0:
                    return
            torch.cuda.empty_cache()

        def train(args, loader):
            for steps, x in enumerate(loader):
                model(x.cuda()).mean().backward()
                optimizer.step()
                sample_images(args, None, steps)
        """,
    ),
    "no_grad on a network that is frozen where it is put in eval mode": (
        "evaluation-records-graph",
        """
        def measure(build, loader):
            sampler = build()
            sampler.eval().requires_grad_(False).to(device)
            for x in loader:
                total += sampler(x.cuda()).sum().item()
        """,
    ),
    "a list of bounds that was read at once, with a first and a last one": (
        "tensor-as-python-number",
        """
        class Net(nn.Module):
            def forward(self, x: torch.Tensor, masks: torch.Tensor):
                ends = masks.nonzero().squeeze().cpu()
                ends = [0] + (ends + 1).numpy().tolist() + [x.shape[0]]
                return [self.gru(x[ends[i] : ends[i + 1]]) for i in range(len(ends) - 1)]
        """,
    ),
    "weights of a parameter in one branch, of a module in the other": (
        "freezes-nothing",
        """
        def unlock(x):
            if isinstance(x, nn.Parameter):
                x.requires_grad = False
            else:
                for p in x.parameters():
                    p.requires_grad = False
        """,
    ),
    "a generator that an endpoint hands over to be streamed": (
        "inference-blocks-event-loop",
        """
        from fastapi import FastAPI
        from transformers import pipeline

        app = FastAPI()
        model = pipeline("text-generation")

        def stream(prompt):
            yield model(prompt)

        @app.post("/generate")
        async def generate(prompt: str):
            return StreamingResponse(stream(prompt))
        """,
    ),
    "gradients that a helper divides by the scale before they are clipped": (
        "clipped-while-scaled",
        """
        def prepare(scaler, optimizer):
            scaler.unscale_(optimizer)

        def step(loss, model, optimizer, scaler):
            scaler.scale(loss).backward()
            prepare(scaler, optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
        """,
    ),
    "a report on the last batch, too": (
        "item-every-step",
        """
        def train(loader):
            for i, x in enumerate(loader):
                loss = model(x.cuda()).mean()
                loss.backward()
                optimizer.step()
                if (i + 1) % self.log_interval == 0 or (i + 1) == len(loader):
                    show(loss.item())
        """,
    ),
}


def _comments(rule: str, code: str, around: Mapping[str, bytes] | None = None) -> list[str]:
    config = Config().model_copy(update={"select": (rule,), "min_confidence": 0.0, "skip": ()})
    file = whole_file("lib/code.py", as_file(code).encode())
    review = review_files([file], config=config, facts=NO_FACTS, limit_to_change=True, around=around or {})
    assert not review.not_reviewed
    return [finding.message for finding in review.findings if finding.name == rule]


@pytest.mark.parametrize("kind", MISTAKES)
def test_it_is_not_made_again(kind: str) -> None:
    assert _comments(*MISTAKES[kind]) == []


# Independent readers found statements of these rules wrong that no reading of the same code bears out: what looks like the
# problem and is none is not even proposed.
SILENT = frozenset(
    "activation-by-hand array-copied-into-tensor batch-mover-blocks batch-of-one cache-cleared-every-step cast-after-upload "
    "cast-to-count checkpoint-loaded-on-gpu collective-per-tensor computed-for-report container-opened-per-item copy-per-row "
    "counted-one-by-one deepcopy-in-hot-code elements-read-in-loop find-unused-parameters host-round-trip "
    "invariant-compute-in-loop list-searched-in-loop mask-filled-per-sample masked-arithmetic masked-update-by-index "
    "matrix-only-reduced per-sample-loop python-reduction-over-tensor repeat-passed-on repeated-before-module result-overwritten "
    "result-stored-with-graph results-pile-up row-loop selection-per-value slice-loop table-rebuilt-in-loop "
    "tensor-as-python-number trainer-in-full-precision widened-before-copy".split()
)


@pytest.mark.parametrize("name", sorted(SILENT))
def test_valid_code_is_not_even_proposed(name: str) -> None:
    rule = find_rule(name)
    assert rule is not None
    assert [code for code in rule.VALID if _comments(name, code)] == []


IN_ANOTHER_FILE = {
    "a bias that weights elsewhere hold": (
        "linear-bias-before-batchnorm",
        """
        class Refiner(nn.Module):
            def __init__(self):
                self.block = nn.Sequential(nn.Conv2d(64, 64, 3), nn.BatchNorm2d(64), nn.ReLU())
        """,
        """
        import torch
        from lib.code import Refiner

        net = Refiner()
        net.load_state_dict(torch.load("refiner.pth"))
        """,
    ),
    "a dataset that another file resamples": (
        "workers-restarted-each-epoch",
        """
        def make_loader(pairs):
            return DataLoader(pairs, batch_size=8, num_workers=8, shuffle=True)

        class Data:
            def __init__(self, pairs):
                self.train_loader = DataLoader(pairs, batch_size=8, num_workers=8, shuffle=True)
        """,
        """
        def train(loader, epochs):
            for epoch in range(epochs):
                loader.dataset.resample_pairs(epoch)
                for batch in loader:
                    step(batch)
        """,
    ),
    "an attribute that another file differentiates": (
        "result-stored-with-graph",
        """
        class Field(nn.Module):
            def forward(self, x):
                density = torch.relu(self.net(x))
                self.last_density = density
                return density.exp()
        """,
        """
        def normals(field, positions):
            field.last_density.sum().backward()
            return positions.grad
        """,
    ),
    "a step that only a test runs": (
        "cache-cleared-every-step",
        """
        def measure_memory(model):
            torch.cuda.empty_cache()
            return model
        """,
        """
        import torch
        from lib.code import measure_memory

        def test_train(model, loader, optimizer):
            for x in loader:
                measure_memory(model)(x.cuda()).mean().backward()
                optimizer.step()
        """,
    ),
    "a method that turns autograd off itself": (
        "evaluation-records-graph",
        """
        def evaluate(model, loader):
            model.eval()
            for mix in loader:
                correct += (model.separate_tracks(mix.cuda()).argmax(1) == 1).sum().item()
        """,
        """
        import torch

        class Base(torch.nn.Module):
            def separate_tracks(self, wav):
                return torch_separate(self, wav)

        @torch.no_grad()
        def torch_separate(model, wav):
            return model(wav)
        """,
    ),
    "loops over parameters around a network that derives forces": (
        "requires-grad-toggled",
        """
        def evaluate(model, batch):
            for p in model.parameters():
                p.requires_grad = False
            out = model(batch)
            for p in model.parameters():
                p.requires_grad = True
            return out
        """,
        """
        import torch

        def outputs(energy, positions):
            forces = -torch.autograd.grad(energy, positions)[0]
            return forces
        """,
    ),
    "fused attention where an option that is on returns the weights": (
        "attention-in-steps",
        """
        class Attention(nn.Module):
            def forward(self, queries, keys, values):
                scores = torch.einsum("blhe,bshe->bhls", queries, keys)
                weights = self.dropout(torch.softmax(self.scale * scores, dim=-1))
                mixed = torch.einsum("bhls,bshd->blhd", weights, values)
                if self.output_attention:
                    return (mixed.contiguous(), weights)
                return (mixed.contiguous(), None)
        """,
        """
        class Model(nn.Module):
            def __init__(self, width=512, output_attention=True):
                self.layers = make(width, output_attention)
        """,
    ),
    "a task that a runner without autograd evaluates": (
        "evaluation-records-graph",
        """
        class Retrieval(Task):
            def valid_epoch(self, model, loader):
                return self.score_all(model, loader)

            def score_all(self, model, loader):
                model.eval()
                return [model(batch.cuda()).argmax(1).cpu().numpy() for batch in loader]
        """,
        """
        import torch

        class Runner:
            @torch.no_grad()
            def evaluate(self, loader):
                return self.task.valid_epoch(self.model, loader)
        """,
    ),
    "training in float32 of a network with Fourier transforms": (
        "full-precision-training",
        STEP,
        """
        import torch

        class Filter(torch.nn.Module):
            def forward(self, x):
                return torch.fft.irfft(torch.fft.rfft(x) * self.weight)
        """,
    ),
    "a network that derives forces": (
        "evaluation-records-graph",
        """
        def evaluate(model, loader):
            model.eval()
            for batch in loader:
                total += model(batch)["energy"].detach().cpu()
        """,
        """
        import torch

        def outputs(energy, positions):
            forces = -torch.autograd.grad(energy, positions)[0]
            return forces
        """,
    ),
}


@pytest.mark.parametrize("kind", IN_ANOTHER_FILE)
def test_another_file_is_asked(kind: str) -> None:
    rule, code, other = IN_ANOTHER_FILE[kind]
    data = textwrap.dedent(other).encode()
    if kind == "a step that only a test runs":
        assert _comments(rule, code, {"lib/train.py": data}), "called by a program, it would be one"
        assert _comments(rule, code, {"tests/test_memory.py": data}) == []
    else:
        assert _comments(rule, code), "without the other file, the statement holds"
        assert _comments(rule, code, {"lib/other.py": data}) == []


def test_scripts_that_only_infer_may_leave_autotuning_off() -> None:
    config = Config().model_copy(
        update={"select": ("cudnn-autotune-off",), "min_confidence": 0.0, "skip": ()}
    )
    code = "import torch\n\ntorch.backends.cudnn.benchmark = False\nvocode(mels)\n"
    found = {
        path: review_files(
            [whole_file(path, code.encode())], config=config, facts=NO_FACTS, limit_to_change=True, around={}
        ).findings
        for path in ("src/inference.py", "src/main.py")
    }
    assert found["src/main.py"], "elsewhere, it is worth a word"
    assert not found["src/inference.py"]
