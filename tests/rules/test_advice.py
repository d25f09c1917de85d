"""What comments say of a case: the words follow the code, not the rule's usual case."""

from __future__ import annotations

import pytest

from tests.rules.messages import hits, messages

EVALUATION = """
    def evaluate(model, loader):
        model.eval()
        total = 0
        for batch in loader:
            output = model(**batch)
            total += {}
        return total
"""


def test_an_evaluation_that_chains_the_graphs_of_all_batches_says_so() -> None:
    (chained,) = messages("evaluation-records-graph", EVALUATION.format("output.loss"))
    assert "`total` on line" in chained and "memory grows with their number" in chained
    (read,) = messages("evaluation-records-graph", EVALUATION.format("output.loss.item()"))
    assert "memory grows" not in read


JOINED = """
    def evaluate(model, loader):
        model.eval()
        scores = torch.tensor([])
        for batch in loader:
            scores = torch.cat({})
        return float(scores.mean())
"""


@pytest.mark.parametrize(
    "joined",
    [
        "[scores, torch.sigmoid(model(batch))[batch > 0]]",
        "(scores, model(batch).flatten()), dim=0",
        "[scores, model(batch).max(1)[0]]",
    ],
)
def test_an_evaluation_that_joins_what_has_a_graph_says_so(joined: str) -> None:
    (said,) = messages("evaluation-records-graph", JOINED.format(joined))
    assert "`scores` on line " in said
    assert "keeps the graph of every batch, so that memory grows with their number" in said


@pytest.mark.parametrize(
    "joined",
    [
        "[scores, model(batch).detach()]",
        "[scores, model(batch).argmax(1)]",
        "[scores, model(batch).max(1)[1]]",
        "[other, model(batch)]",
    ],
)
def test_what_is_joined_without_a_graph_does_not_grow(joined: str) -> None:
    (said,) = messages("evaluation-records-graph", JOINED.format(joined))
    assert "memory grows" not in said


COPY = """
    def train(model, loader, optimizer):
        for x, y in loader:
            loss = model(x.cuda()).mean()
            loss.backward()
            optimizer.step()
            depth = model.depth.cpu().numpy()
            {}
"""


def test_a_copy_of_which_more_than_an_extreme_is_used() -> None:
    (reduced,) = messages("host-copy-every-step", COPY.format("log(depth.max())"))
    assert "Only a sum or an extreme of it is used" in reduced
    whole = "low, high = depth.min(), depth.max()\n            maps.append((depth - low) / high)"
    (used,) = messages("host-copy-every-step", COPY.format(whole))
    assert "Only a sum" not in used
    mask = "classes = model(x).argmax(1)\n            classes = torch.argmax(classes, 1).cpu().numpy()\n            "
    (compared,) = messages("host-copy-every-step", COPY.format(f"{mask}image[classes == 1] = 0"))[1:]
    assert "Only a sum" not in compared and "Compute on the device, and copy the result once." in compared


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (
            "for c in range(19):\n                share[c] = (y == c).sum().item()",
            "in each iteration of the loop at line ",
        ),
        ("share[0] = (y == 0).sum().item()", "makes Python wait for the GPU on every step"),
    ],
)
def test_a_loop_inside_of_the_step_is_named(code: str, words: str) -> None:
    (said,) = messages("item-every-step", COPY.replace("depth = model.depth.cpu().numpy()", "").format(code))
    assert words in said and "on every step of the loop at line " in said


COLLECTED = """
    @torch.no_grad()
    def evaluate(model, loader):
        found, total = [], 0.0
        for x, y in loader:
            logits = model(x.cuda())
            {}
        return found, total
"""


def test_numbers_that_are_all_needed_are_not_read_on_the_steps_that_report_them() -> None:
    (kept,) = messages("item-every-step", COLLECTED.format("found.append(logits.argmax().item())"))
    assert "read all of them once, after the loop" in kept and "steps that report" not in kept
    (listed,) = messages("item-every-step", COLLECTED.format("found += [logits.argmax().item()]"))
    assert "read all of them once, after the loop" in listed
    (summed,) = messages("item-every-step", COLLECTED.format("total += logits.sum().item()"))
    assert "read the sum once, after the loop" in summed


def test_rows_of_one_length_need_no_mask() -> None:
    code = """
        def train(model, loader, optimizer):
            for tokens in loader:
                tokens = tokens.cuda()
                found = []
                for i in range(tokens.size(0)):
                    row = tokens[i, 1:, None]
                    {}
                    found.append(torch.softmax(row, 0).sum())
                model(torch.stack(found)).mean().backward()
                optimizer.step()
    """
    said = [*messages("per-sample-loop", code.format("pass")), *messages("slice-loop", code.format("pass"))]
    assert said and not any("lengths" in text for text in said)
    (ragged,) = messages("per-sample-loop", code.format("row = row[: sizes[i]]"))
    assert "lengths[:, None]" in ragged


def test_what_is_computed_of_an_array_is_on_the_host() -> None:
    code = "image = logits.cpu().numpy()\n            found.append(psnr({}, y).item())"
    assert messages("item-every-step", COLLECTED.format(code.format("image"))) == []
    assert messages("item-every-step", COLLECTED.format(code.format("logits")))


def test_what_does_not_wait_is_no_other_wait_of_the_iteration() -> None:
    code = "image = logits.cpu().numpy()\n            found.append(psnr(image, y).item())"
    (said,) = messages("host-copy-every-step", COLLECTED.format(code))
    assert "also waits" not in said


THRESHOLD = """
    def masks(logits: torch.Tensor, threshold: float):
        return torch.sigmoid(logits) > {}
"""


def test_a_threshold_that_may_be_zero_or_one_is_moved_by_a_function_that_takes_both() -> None:
    (named,) = messages("sigmoid-before-threshold", THRESHOLD.format("threshold"))
    assert "`torch.logit(torch.as_tensor(threshold))`" in named
    (half,) = messages("sigmoid-before-threshold", THRESHOLD.format("0.5"))
    assert "itself with `0`" in half
    assert not messages("sigmoid-before-threshold", THRESHOLD.format("1.0"))
    assert not messages("sigmoid-before-threshold", THRESHOLD.format("2"))


def test_values_that_are_copied_at_once_are_not_told_to_be() -> None:
    stacked = "numbers.append(torch.stack(norms).tolist())"
    told = messages("host-copy-every-step", COPY.format(stacked))
    (one,) = [message for message in told if "torch.stack(norms)" in message]
    assert "one copy of several values already" in one and "copy the result once" not in one


SHOWN = """
    def train(model, loader, optimizer, accumulate):
        pbar = tqdm(total=len(loader))
        for step, (x, y) in enumerate(loader):
            total = 0.
            for _ in range(accumulate):
                loss = model(x.cuda()).mean()
                total += loss.item()
                loss.backward()
            {}
            optimizer.step()
"""


def test_a_sum_that_each_step_shows_is_not_told_to_wait_there_instead() -> None:
    (shown,) = hits("item-every-step", SHOWN.format("pbar.set_description(f'loss: {total:.4f}')"))
    assert "`total` is shown each time (line 19)" in shown.message and "every N steps" in shown.message
    assert shown.fix is None
    seldom = "if step % 100 == 0: pbar.set_description(f'loss: {total:.4f}')"
    (kept,) = hits("item-every-step", SHOWN.format(seldom))
    assert "shown" not in kept.message
    assert kept.fix is not None


EXTRACTION = """
    def extract_features(model, dataloader, batch_size):
        features = []
        for x in {}:
            out = model.encode_image(x.cuda())
            features.append(out.detach().cpu().numpy())
        return np.concatenate(features)
"""


def test_inference_over_a_loader_whose_results_leave_the_graph_is_stated_surely() -> None:
    (sure,) = hits("evaluation-records-graph", EXTRACTION.format("tqdm(dataloader)"))
    assert "runs over a data set" in sure.message and sure.confidence == 0.8
    (parts,) = hits("evaluation-records-graph", EXTRACTION.format("range(batch_size)"))
    assert "runs over a data set" not in parts.message and parts.confidence < 0.8
    trains = (
        EXTRACTION.format("tqdm(dataloader)")
        + """
    def train(model, dataloader, optimizer):
        for x in dataloader:
            model(x.cuda()).mean().backward()
            optimizer.step()
"""
    )
    (beside,) = hits("evaluation-records-graph", trains)
    assert beside.confidence < 0.8


ADDED_UP = """
    def added(x, labels, rows, n):
        sums = {}
        for {} in {}:
            for t, label in enumerate(labels):
                sums[{}] {}
        return sums
"""


@pytest.mark.parametrize(
    ("index", "update", "said"),
    [
        ("label", "+= x[t]", "`sums.index_add_(0, index, values)`"),
        ("b, labels[b, t]", "+= x[b, t]", "`sums.scatter_add_(1, index, values)`"),
        ("labels[b, t], t", "+= x[b, t]", "`sums.scatter_add_(0, index, values)`"),
        ("b][labels[b, t]", "-= x[b, t]", "`sums.scatter_add_(1, index, -values)`"),
        ("label, labels[b, t]", "+= x[b, t]", "`sums.index_put_((i, j), values, accumulate=True)`"),
        ("b, label", "+= 1", "`torch.bincount(i * n + j, minlength=n)`"),
        ("label", "+= 1", "`torch.bincount(index, minlength=n)`"),
    ],
)
def test_what_adds_all_at_once_has_the_indices_of_the_loop(index: str, update: str, said: str) -> None:
    (tensor,) = messages(
        "counted-one-by-one", ADDED_UP.format("torch.zeros(n, n)", "b", "range(len(rows))", index, update)
    )
    assert said in tensor and "np.add.at" not in tensor
    (array,) = messages(
        "counted-one-by-one", ADDED_UP.format("np.zeros((n, n))", "b", "range(len(rows))", index, update)
    )
    assert "`np.add.at(sums, " in array and "torch.bincount" not in array and "_add_" not in array


REDUCED = """
    def train(model, loader, optimizer):
        for x in loader:
            loss = model(x.cuda()).mean()
            loss.backward()
            optimizer.step()
            loss_value = {}
            log(all_reduce_mean(loss_value))
"""


def test_what_is_added_up_before_it_is_reduced_is_a_number_or_a_tensor() -> None:
    (number,) = messages("metric-reduced-every-step", REDUCED.format("loss.item()"))
    assert "(`running_loss_value += loss_value`)" in number
    (tensor,) = messages("metric-reduced-every-step", REDUCED.format("loss * 2"))
    assert "on the device (`running_loss_value += loss_value.detach()`)" in tensor


SAMPLER = """
    def sample(model, x, y, scale):
        if scale > 1.0:
            nothing = torch.zeros_like(y)
        {}
        for t in torch.linspace(1, 0, 50):
            both = y
            if {}:
                both = torch.cat([y, nothing])
            x = x - model(x, t, both)
        return x
"""


def test_what_is_computed_of_an_operand_with_a_condition_keeps_that_condition() -> None:
    (guarded,) = messages("invariant-compute-in-loop", SAMPLER.format("", "scale > 1.0 and t < 0.9"))
    assert "Compute it once where `nothing` is set, on line" in guarded and "`scale > 1.0`" in guarded
    both = SAMPLER.replace("        {}\n", "        else:\n            nothing = y\n        {}\n")
    (always,) = messages("invariant-compute-in-loop", both.format("", "t < 0.9"))
    assert always.endswith("Compute it once before the loop and use the name.")
    stops = SAMPLER.replace("        {}\n", "        else:\n            raise ValueError\n        {}\n")
    (raised,) = messages("invariant-compute-in-loop", stops.format("", "t < 0.9"))
    assert raised.endswith("Compute it once before the loop and use the name.")
    reset = "nothing = load()"
    (asked,) = messages("invariant-compute-in-loop", SAMPLER.format(reset, "nothing is not None and t < 0.9"))
    assert "keep what the condition on line" in asked and asked.endswith("asks of `nothing`.")


MOVED = """
    class Loss:
        def __call__(self, images):
            t = {}
            t = t.to({})
            return images * t
"""


def test_a_tensor_built_on_the_device_keeps_its_data_type() -> None:
    spread = "torch.linspace(0, 1, 9).exp()"
    (kept,) = messages(
        "built-on-host-then-moved", MOVED.format(spread, "device=images.device, dtype=images.dtype")
    )
    assert "keep only `.to(images.dtype)` of the move" in kept and "random" not in kept
    (dropped,) = messages("built-on-host-then-moved", MOVED.format(spread, "images.device"))
    assert "and drop the move." in dropped
    (drawn,) = messages(
        "built-on-host-then-moved", MOVED.format("torch.randn((8, 1)).exp()", "images.device")
    )
    assert drawn.endswith("The GPU draws other random numbers than the CPU.")


KEPT = """
    def validate(model, loader, criterion):
        model.eval()
        losses = []
        for x, y in loader:
            {}
            out = model(x.cuda())
            losses.append({})
        return losses
"""


@pytest.mark.parametrize(
    ("before", "kept", "grows"),
    [
        ("", "((out - y) ** 2).mean()", True),
        ("", "criterion(out, y.cuda())", True),
        ("", "out", True),
        ("", "out.cpu()", True),
        ("", "out.detach().cpu()", False),
        ("", "out.argmax(1)", False),
        ("", "torch.tensor(out)", False),
        ("", "scored(out, y)", False),  # nobody knows whether it has a graph
        ("losses = []", "out.mean()", False),
    ],
)
def test_an_evaluation_that_keeps_the_graphs_of_all_batches_in_a_list_says_so(
    before: str, kept: str, grows: bool
) -> None:
    (said,) = messages("evaluation-records-graph", KEPT.format(before, kept))
    assert ("`losses` on line" in said and "keeps the graph of every batch" in said) is grows
