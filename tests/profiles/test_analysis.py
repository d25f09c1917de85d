from __future__ import annotations

import pytest

from benchmarks.profiles.gpu import KINDS
from benchmarks.profiles.kinds import of_simulated
from ptopt.profiles.profile import PARTS, Profile
from ptopt.profiles.reading import profile_of
from ptopt.profiles.verdict import targets, verdict
from ptopt.report.profile_sections import sections
from tests.profiles.traces import DATA, event, launched, profile

STEP = event("user_annotation", "ProfilerStep#1", 0, 100)
MAIN = event("python_function", "train.py(3): main", 0, 100)


@pytest.mark.parametrize("kind", KINDS)
def test_a_seeded_bottleneck_of_a_simulated_gpu_is_named_ten_times_of_ten(kind: str) -> None:
    for seed in range(10):
        found = of_simulated(kind, seed)
        assert verdict(found).kind == kind, (kind, seed, found.shares)
        assert sum(found.shares.values()) == pytest.approx(1)
        assert found.utilisation is not None
        (busy, loading) = targets(found)
        assert busy.reached == (kind in ("memory", "compute", "communication"))
        assert loading.reached == (kind != "data")


@pytest.mark.parametrize("kind", ["data", "host"])
def test_a_real_run_on_the_cpu_is_judged(kind: str) -> None:
    found = profile_of(DATA / f"{kind}.json.gz")
    assert isinstance(found, Profile)
    assert verdict(found).kind == kind
    assert found.steps == 2 and found.steps_by == "ProfilerStep" and found.device == "cpu"
    assert set(found.shares) == set(PARTS) and sum(found.shares.values()) == pytest.approx(1)
    slow = found.costs[0].place
    assert (slow.frame.function, slow.callee) == {"data": ("__getitem__", "sleep"), "host": ("forward", "")}[
        kind
    ]
    assert any("no kernels of a GPU" in limit for limit in found.limits)


def test_phases_of_a_step_on_the_cpu() -> None:
    found = profile(
        STEP,
        event("user_annotation", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 0, 20),
        event("cpu_op", "aten::stack", 5, 5),
        event("cpu_op", "aten::linear", 20, 30),
        event("cpu_op", "aten::addmm", 25, 20),
        event("cpu_op", "autograd::engine::evaluate_function: AddmmBackward0", 50, 20),
        event("cpu_op", "aten::mm", 52, 10),
        event("user_annotation", "Optimizer.step#SGD.step", 70, 10),
        event("cpu_op", "c10d::allreduce_", 80, 5),
    )
    assert found.shares == pytest.approx(
        {
            "data": 0.2,
            "forward": 0.3,
            "backward": 0.2,
            "optimizer": 0.1,
            "communication": 0.05,
            "copies": 0,
            "idle": 0.15,
        }
    )
    own = {row.name: row.self_share for row in found.operators}
    assert own["aten::linear"] == pytest.approx(0.1) and own["aten::addmm"] == pytest.approx(0.2)


def test_steps_without_marks_lie_between_updates_of_the_optimizer() -> None:
    updates = [event("user_annotation", "Optimizer.step#SGD.step", 100 * n, 10) for n in range(4)]
    found = profile(*updates, event("cpu_op", "aten::mm", 120, 40))
    assert (found.steps, found.steps_by) == (3, "updates of the optimizer")
    assert found.step_ms == pytest.approx((0.1, 0.1, 0.1))
    alone = profile(event("cpu_op", "aten::mm", 10, 40))
    assert alone.steps == 1 and "none found" in alone.steps_by


def test_a_gap_of_the_gpu_is_blamed_on_what_the_host_did_in_it() -> None:
    found = profile(
        STEP, MAIN,
        *launched("gemm", 1, 5, 15, 1),
        event("python_function", "<built-in method tolist of Tensor object at 0x1>", 30, 40),
        *launched("gemm", 75, 80, 20, 2),
    )  # fmt: skip
    assert found.shares["forward"] == pytest.approx(0.35) and found.shares["idle"] == pytest.approx(0.65)
    worst = found.idle[0]
    assert worst.cause == "Python" and worst.place is not None and worst.place.callee == "tolist"
    assert worst.share == pytest.approx(0.40)
    assert verdict(found).kind == "host"


def test_a_wait_for_the_last_kernel_is_the_cause_of_the_gap_behind_it() -> None:
    found = profile(
        STEP, MAIN,
        *launched("gemm", 1, 5, 25, 1),
        event("python_function", "<built-in method item of Tensor object at 0x1>", 4, 28),
        event("cpu_op", "aten::item", 5, 26),
        event("cuda_runtime", "cudaStreamSynchronize", 6, 24.5),
        *launched("gemm", 75, 80, 20, 2),
    )  # fmt: skip
    behind = next(row for row in found.idle if row.cause == "synchronisation")
    assert behind.place is not None and behind.place.callee == "item" and behind.activity == "aten::item"
    assert behind.share == pytest.approx(0.5)
    (wait,) = found.waits
    assert wait.what == "aten::item" and wait.per_step == 1 and wait.share == pytest.approx(0.245)


def test_a_number_that_lies_on_the_cpu_is_read_without_a_wait() -> None:
    read = event("cpu_op", "aten::item", 30, 2), event("cpu_op", "aten::_local_scalar_dense", 30.5, 1)
    on_gpu = profile(STEP, MAIN, *launched("gemm", 1, 5, 25, 1), *read)
    assert on_gpu.waits == ()
    on_cpu = profile(STEP, MAIN, *read)
    assert [(wait.what, wait.share) for wait in on_cpu.waits] == [("aten::item", 0.0)]
    (reads,) = (
        section for section in sections(on_cpu, (), 10) if section.title == "Tensors that the host reads"
    )
    assert "cannot tell" in reads.note


def test_while_batches_are_waited_for_a_gap_is_data_loading() -> None:
    loader = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
    found = profile(
        STEP, MAIN, *launched("gemm", 1, 5, 15, 1), event("user_annotation", loader, 20, 50), *launched("gemm", 75, 80, 20, 2)
    )  # fmt: skip
    assert found.shares["data"] == pytest.approx(0.5)
    assert verdict(found).kind == "data"


def test_what_computation_hides_is_no_communication() -> None:
    hidden = event(
        "kernel", "ncclDevKernel_AllReduce_Sum_f32_RING_LL", 10, 60, tid=20, correlation=9, device=0
    )
    found = profile(STEP, *launched("gemm", 1, 5, 50, 1), hidden, event("cpu_op", "aten::mm", 0, 3))
    assert found.shares["communication"] == pytest.approx(0.15)
    assert found.shares["forward"] == pytest.approx(0.50)


def test_kernels_of_the_thread_of_the_backward_pass() -> None:
    backward = [
        event("cpu_op", "autograd::engine::evaluate_function: MmBackward0", 10, 20, tid=2),
        event("cuda_runtime", "cudaLaunchKernel", 12, 2, tid=2, correlation=5),
        event("kernel", "gemm", 20, 30, tid=7, correlation=5, device=0),
    ]
    found = profile(STEP, MAIN, event("python_function", "torch/_tensor.py(566): backward", 5, 40), *backward)
    assert found.shares["backward"] == pytest.approx(0.3)
    (cost,) = (cost for cost in found.costs if cost.place.callee == "backward")
    assert cost.work == pytest.approx(0.3)


def test_work_of_the_backward_pass_is_that_of_the_line_that_made_its_node() -> None:
    node = {"Sequence number": 7}
    run = [
        event("cuda_runtime", "cudaLaunchKernel", 52, 2, tid=2, correlation=5),
        event("kernel", "gemm", 55, 30, tid=7, correlation=5, device=0),
        event("cpu_op", "aten::mm", 51, 5, tid=2),
    ]
    found = profile(
        STEP, MAIN,
        event("python_function", "<built-in method detach of Tensor object at 0x1>", 2, 6),
        {**event("cpu_op", "aten::detach", 3, 4), "args": node},  # has the number of the next node, and makes none
        event("python_function", "nn.Module: Linear_0", 10, 30),
        {**event("cpu_op", "aten::linear", 12, 20), "args": node},
        event("python_function", "torch/_tensor.py(566): backward", 45, 45),
        {**event("cpu_op", "autograd::engine::evaluate_function: AddmmBackward0", 50, 8, tid=2), "args": node},
        *run,
    )  # fmt: skip
    costs = {cost.place.callee: cost for cost in found.costs}
    assert costs["nn.Module: Linear"].backward == pytest.approx(0.35)  # the kernel, and the gap before it
    assert costs["nn.Module: Linear"].work == pytest.approx(0.3)
    assert costs["backward"].backward == 0
    assert "detach" not in costs or costs["detach"].backward == 0
    gap = next(row for row in found.idle if row.activity.startswith("autograd::"))
    assert gap.place is not None and gap.place.callee == "nn.Module: Linear"


def test_copies_small_kernels_and_tensor_cores() -> None:
    copy = event(
        "gpu_memcpy", "Memcpy HtoD (Pageable -> Device)", 0, 40, tid=7, correlation=1, device=0, bytes=1 << 20
    )
    found = profile(
        STEP, copy,
        *launched("ampere_sgemm_128x64_tn", 1, 40, 20, 2),
        *launched("sm80_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize", 2, 60, 20, 3),
        *launched("void at::native::vectorized_elementwise_kernel<4>", 3, 80, 5, 4),
    )  # fmt: skip
    assert found.kernels is not None
    assert found.kernels.tensor_cores == pytest.approx(0.5)
    assert found.kernels.small == pytest.approx(1 / 3) and found.kernels.per_step == 3
    (row,) = found.copies
    assert (row.per_step, row.bytes_per_step) == (1, 1 << 20) and row.share == pytest.approx(0.4)
    assert found.shares["copies"] == pytest.approx(0.4)
    assert verdict(found).kind == "memory"


def test_losses_that_are_alike_are_no_single_bottleneck() -> None:
    loader = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
    found = profile(STEP, event("user_annotation", loader, 0, 30), event("cpu_op", "aten::mm", 30, 40))
    assert verdict(found).kind == "none"
    assert "30% of the step waits for batches" in verdict(found).evidence


def test_events_that_end_a_rounding_after_the_next_begins_do_not_nest() -> None:
    found = profile(STEP, event("cpu_op", "aten::mm", 0, 50.0004), event("cpu_op", "aten::add", 50, 50))
    own = {row.name: row.total_share for row in found.operators}
    assert own == pytest.approx({"aten::mm": 0.5, "aten::add": 0.5}, abs=1e-4)


def test_a_trace_without_stacks_says_what_it_cannot_name() -> None:
    found = profile(STEP, event("cpu_op", "aten::mm", 0, 50))
    assert not found.costs
    assert any("with_stack" in limit for limit in found.limits)
