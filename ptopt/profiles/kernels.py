"""What a kernel of a GPU, or an operator of the CPU, spends its time on, by its name."""

from __future__ import annotations

import enum
import re


class Work(enum.IntEnum):
    """`COMPUTE`: arithmetic dominates (products, convolutions, attention). `MEMORY`: reading and writing does."""

    COMPUTE = 0
    MEMORY = 1
    COMMUNICATION = 2
    UNKNOWN = 3


_COMMUNICATION = re.compile(
    r"nccl|rccl|all_?reduce|all_?gather|reduce_?scatter|\bcross_device|one_?shot|two_?shot", re.I
)
_PRODUCT = re.compile(
    r"gemm|gemv|cutlass|cublas|nvjet|xmma|conv|wgrad|dgrad|winograd|implicit_?|flash|fmha|attention|sdpa|matmul|_mm_|\bmm\b|bmm|"
    r"Cijk_|mfma|wgmma|cudnn_.*(fprop|bprop)|triton_tem_|lstm|gru_|rnn",
    re.I,
)
# Names of libraries of NVIDIA: what they run on, as they are built.
_TENSOR_CORES = re.compile(
    r"tensorop|hmma|imma|wgmma|mma_sync|s\d+gemm_(?:fp16|bf16)|[hs]\d{3,4}(?:gemm|cudnn)|[hi]\d{3,5}gemm|nvjet|flash|fmha|"
    r"sm(?:80|86|89|90|100)_xmma|gemm_(?:bf16|f16|fp16|tf32|e4m3)|tf32f32|_tc_|mfma|Cijk_.*_(?:HB?S?_|BBS_|BSS_|HHS_)",
    re.I,
)
_SCALAR_UNITS = re.compile(
    r"simt|sgemm|dgemm|cgemm|ffma|fp32_fp32|gemv|scudnn|volta_s(?:gemm|cudnn)|maxwell_|dmma_none|f32f32_f32f32",
    re.I,
)
_CPU_PRODUCTS = re.compile(
    r"aten::(?:addmm|mm|bmm|baddbmm|matmul|linear|addbmm|einsum|conv|_conv|convolution|mkldnn_conv|_scaled_dot_product|mkldnn_linear|"
    r"_convolution|slow_conv|thnn_conv|lstm|gru|_flash|cudnn_conv|miopen_conv)|mkldnn::|onednn::|mkl::",
)
_NO_WORK = re.compile(
    r"aten::(?:empty|view|t$|transpose|as_strided|expand|detach|select|slice|reshape|unbind|squeeze|unsqueeze|resize)"
)


def kernel_work(name: str) -> Work:
    """Of a kernel."""
    if _COMMUNICATION.search(name):
        return Work.COMMUNICATION
    if _PRODUCT.search(name):
        return Work.COMPUTE
    return Work.MEMORY


def operator_work(name: str) -> Work:
    """Of an operator's own time on the CPU; views and annotations are neither."""
    if not name.startswith(("aten::", "mkldnn::", "onednn::", "mkl::")) or _NO_WORK.match(name):
        return Work.UNKNOWN
    return Work.COMPUTE if _CPU_PRODUCTS.match(name) else Work.MEMORY


def on_tensor_cores(name: str) -> bool | None:
    """Whether a kernel of products uses tensor cores; None where the name does not say."""
    if _SCALAR_UNITS.search(name) and not re.search(r"tensorop|tf32", name, re.I):
        return False
    return True if _TENSOR_CORES.search(name) else None
