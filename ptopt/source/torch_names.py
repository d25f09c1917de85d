"""Names of torch's surface, grouped by what a call gives. Read off the public API of torch 2.13."""

from __future__ import annotations

ARRAY_MODULES = frozenset({"numpy", "cupy", "scipy", "pandas", "cv2", "librosa"})

# Types of CPU tensors as they were named before torch 0.4, which also make tensors: the data type of each.
LEGACY_TYPES = {
    "FloatTensor": "float32",
    "DoubleTensor": "float64",
    "HalfTensor": "float16",
    "BFloat16Tensor": "bfloat16",
    "LongTensor": "int64",
    "IntTensor": "int32",
    "ShortTensor": "int16",
    "ByteTensor": "uint8",
    "BoolTensor": "bool",
    "CharTensor": "int8",
}

TENSOR_FACTORIES = frozenset(
    "arange as_tensor empty empty_like eye from_file from_numpy frombuffer full full_like linspace logspace normal ones ones_like rand "
    "rand_like randint randint_like randn randn_like randperm scalar_tensor tensor tril_indices triu_indices zeros "
    "zeros_like Tensor hann_window hamming_window".split()
)

# torch.<name>(...) whose result is not one tensor.
NOT_TENSOR_FUNCTIONS = frozenset(
    "allclose are_deterministic_algorithms_enabled autocast chunk compile compiler_disable device dtype equal "
    "autocast_decrement_nesting autocast_increment_nesting export finfo get_default_device get_default_dtype get_num_threads get_rng_state iinfo inference_mode "
    "initial_seed is_complex is_floating_point is_grad_enabled is_nonzero is_storage is_tensor layout load "
    "manual_seed no_grad enable_grad numel result_type save seed set_default_device set_default_dtype "
    "set_default_tensor_type set_float32_matmul_precision set_grad_enabled set_num_threads set_printoptions "
    "set_rng_state split tensor_split typename unbind use_deterministic_algorithms vmap func Generator "
    "meshgrid broadcast_tensors promote_types can_cast prepare_multiprocessing_environment".split()
)

# Methods that only a tensor has (not a NumPy array, list, string or module).
TENSOR_ONLY_METHODS = frozenset(
    "detach detach_ unsqueeze unsqueeze_ masked_fill masked_fill_ softmax log_softmax permute contiguous "
    "expand expand_as repeat_interleave index_select scatter scatter_ scatter_add scatter_add_ gather_ "
    "masked_select masked_scatter masked_scatter_ index_add index_add_ index_fill index_fill_ index_copy_ topk bmm "
    "matmul addmm baddbmm requires_grad_ retain_grad new_zeros new_ones new_full new_tensor new_empty type_as "
    "clamp clamp_ clamp_min clamp_max sigmoid sigmoid_ tanh relu relu_ argmax argmin narrow unfold chunk "
    "transpose_ t_ mul_ add_ sub_ div_ zero_ fill_ copy_ normal_ uniform_ exp_ log_ lerp_ pow_ bernoulli "
    "cumsum_ logsumexp nonzero_ long bool_ flatten_ unflatten amax amin vecdot nan_to_num".split()
)

# Methods of a tensor that give a tensor again; NumPy arrays share some of these names.
KEEPS_TENSOR = TENSOR_ONLY_METHODS | frozenset(
    "abs all any argsort bool clone cos cosh cross cumprod cumsum diag diagonal div double eq exp flatten flip float "
    "floor ge gt half int isfinite isinf isnan le log log10 log1p log2 lt max mean median min mm mul ne neg nonzero "
    "norm numpy pow prod quantile reciprocal remainder repeat reshape roll round rsqrt select short sign sin sort "
    "sqrt square squeeze std sub sum swapaxes T t take tile to transpose tril triu trunc type unique var view view_as "
    "where byte cpu cuda bfloat16 softplus".split()
)

GRADLESS_FUNCTIONS = frozenset(
    "argmax argmin argsort eq ge gt le lt ne isnan isinf isfinite nonzero bincount unique all any long int bool "
    "one_hot randperm zeros_like ones_like".split()
)

SCALAR_METHODS = frozenset(
    "size dim numel ndimension nelement get_device data_ptr element_size is_floating_point stride "
    "is_contiguous storage_offset startswith endswith keys items".split()
)

SCALAR_BUILTINS = frozenset(
    "len int float bool str repr isinstance hasattr id hash ord type issubclass callable".split()
)
