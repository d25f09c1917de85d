"""What code may name that is run to prove a fix. All else is refused before anything runs.

Left out is what reads or writes files, processes or other devices, loads code, or changes the state of the interpreter or of
torch. Read off torch 2.13 and NumPy 2; a test compares the lists with what is installed.
"""

from __future__ import annotations


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


MODULES = {  # module -> what of it may be used
    "torch": _words(
        "FloatTensor LongTensor Size Tensor abs abs_ absolute acos acos_ acosh acosh_ add addbmm addcdiv "
        "addcmul addmm addmv addmv_ addr adjoint all allclose amax amin aminmax angle any arange arccos "
        "arccos_ arccosh arccosh_ arcsin arcsin_ arcsinh arcsinh_ arctan arctan2 arctan_ arctanh arctanh_ "
        "argmax argmin argsort argwhere as_strided as_strided_ as_strided_scatter as_tensor asin asin_ asinh "
        "asinh_ atan atan2 atan_ atanh atanh_ atleast_1d atleast_2d atleast_3d autocast baddbmm "
        "bartlett_window bernoulli bfloat16 bincount binomial bitwise_and bitwise_left_shift bitwise_not "
        "bitwise_or bitwise_right_shift bitwise_xor blackman_window block_diag bmm bool broadcast_shapes "
        "broadcast_tensors broadcast_to bucketize can_cast cartesian_prod cat cdist ceil ceil_ chain_matmul "
        "channels_last cholesky cholesky_inverse cholesky_solve chunk clamp clamp_ clamp_max clamp_max_ "
        "clamp_min clamp_min_ clip clip_ clone column_stack combinations complex complex128 complex64 concat "
        "concatenate conj conj_physical conj_physical_ contiguous_format conv1d conv2d conv3d "
        "conv_transpose1d conv_transpose2d conv_transpose3d copysign corrcoef cos cos_ cosh cosh_ "
        "cosine_similarity count_nonzero cov cross cummax cummin cumprod cumsum cumulative_trapezoid deg2rad "
        "deg2rad_ det detach detach_ device diag diag_embed diagflat diagonal diagonal_scatter diff digamma "
        "dist div divide dot double dropout dropout_ dsplit dstack dtype e einsum empty empty_like "
        "empty_permuted empty_strided enable_grad eq equal erf erf_ erfc erfc_ erfinv exp exp2 exp2_ exp_ "
        "expm1 expm1_ eye fill fill_ finfo fix fix_ flatten flip fliplr flipud float float16 float32 float64 "
        "float_power floor floor_ floor_divide fmax fmin fmod frac frac_ frexp from_numpy full full_like "
        "gather gcd gcd_ ge geqrf ger get_default_dtype gradient greater greater_equal gt half hamming_window "
        "hann_window hardshrink heaviside histc histogram histogramdd hsplit hstack hypot i0 i0_ igamma "
        "igammac iinfo imag index_add index_fill index_put index_put_ index_reduce index_select inf "
        "inference_mode inner int int16 int32 int64 int8 inverse is_complex is_conj is_floating_point "
        "is_grad_enabled is_inference is_neg is_nonzero is_same_size is_signed is_tensor isclose isfinite "
        "isin isinf isnan isneginf isposinf isreal istft kaiser_window kron kthvalue lcm lcm_ ldexp ldexp_ le "
        "lerp less less_equal lgamma linspace log log10 log10_ log1p log1p_ log2 log2_ log_ log_softmax "
        "logaddexp logaddexp2 logcumsumexp logdet logical_and logical_not logical_or logical_xor logit logit_ "
        "logspace logsumexp long lt lu_solve lu_unpack masked_fill masked_scatter masked_select matmul "
        "matrix_exp matrix_power max maximum mean median meshgrid min minimum mm mode moveaxis movedim msort "
        "mul multinomial multiply mv mvlgamma nan nan_to_num nan_to_num_ nanmean nanmedian nanquantile nansum "
        "narrow ne neg neg_ negative negative_ nextafter no_grad nonzero nonzero_static norm normal not_equal "
        "numel ones ones_like orgqr ormqr outer pairwise_distance permute pi pinverse poisson polar polygamma "
        "positive pow preserve_format prod promote_types put qr rad2deg rad2deg_ rand rand_like randint "
        "randint_like randn randn_like randperm ravel real reciprocal reciprocal_ relu relu_ remainder "
        "repeat_interleave reshape resolve_conj resolve_neg result_type roll rot90 round round_ row_stack "
        "rsqrt rsqrt_ rsub scalar_tensor scatter scatter_add scatter_reduce searchsorted select "
        "select_scatter sgn short sigmoid sigmoid_ sign signbit sin sin_ sinc sinc_ sinh sinh_ slice_scatter "
        "slogdet softmax sort split split_with_sizes sqrt sqrt_ square square_ squeeze stack std std_mean "
        "stft strided sub subtract sum svd swapaxes swapdims t take take_along_dim tan tan_ tanh tanh_ tensor "
        "tensor_split tensordot threshold threshold_ tile topk trace transpose trapezoid trapz "
        "triangular_solve tril tril_indices triu triu_indices true_divide trunc trunc_ uint8 unbind unflatten "
        "unique unique_consecutive unsqueeze vander var var_mean vdot view_as_complex view_as_real vmap "
        "vsplit vstack where xlogy xlogy_ zero_ zeros zeros_like"
    ),
    "torch.nn.functional": _words(
        "affine_grid avg_pool1d avg_pool2d avg_pool3d adaptive_avg_pool1d adaptive_avg_pool2d "
        "adaptive_max_pool1d adaptive_max_pool2d batch_norm bilinear binary_cross_entropy "
        "binary_cross_entropy_with_logits celu channel_shuffle conv1d conv2d conv3d conv_transpose1d "
        "conv_transpose2d cosine_embedding_loss cosine_similarity cross_entropy ctc_loss dropout elu "
        "embedding embedding_bag fold gaussian_nll_loss gelu glu grid_sample group_norm gumbel_softmax "
        "hardshrink hardsigmoid hardswish hardtanh hinge_embedding_loss huber_loss instance_norm interpolate "
        "kl_div l1_loss layer_norm leaky_relu linear log_softmax logsigmoid lp_pool1d lp_pool2d "
        "margin_ranking_loss max_pool1d max_pool2d max_pool3d mish mse_loss multi_margin_loss "
        "multilabel_margin_loss multilabel_soft_margin_loss nll_loss normalize one_hot pad pairwise_distance "
        "pdist pixel_shuffle pixel_unshuffle poisson_nll_loss prelu relu relu6 relu_ rms_norm "
        "scaled_dot_product_attention selu sigmoid silu smooth_l1_loss soft_margin_loss softmax softmin "
        "softplus softshrink softsign tanh tanhshrink threshold triplet_margin_loss unfold upsample"
    ),
    "torch.linalg": _words(
        "cholesky cholesky_ex cond cross det diagonal eig eigh eigvals eigvalsh householder_product inv "
        "inv_ex ldl_factor ldl_factor_ex ldl_solve lstsq lu lu_factor lu_factor_ex lu_solve matmul matrix_exp "
        "matrix_norm matrix_power matrix_rank multi_dot norm pinv qr slogdet solve solve_ex solve_triangular "
        "svd svdvals tensorinv tensorsolve vander vecdot vector_norm"
    ),
    "torch.fft": _words(
        "fft fft2 fftfreq fftn fftshift hfft hfft2 hfftn ifft ifft2 ifftn ifftshift ihfft ihfft2 ihfftn irfft "
        "irfft2 irfftn rfft rfft2 rfftfreq rfftn"
    ),
    "torch.special": _words(
        "digamma entr erf erfc erfcx erfinv exp2 expit expm1 gammainc gammaincc gammaln i0 i0e i1 i1e log1p "
        "log_ndtr log_softmax logit logsumexp multigammaln ndtr ndtri polygamma psi round sinc softmax "
        "xlog1py xlogy zeta"
    ),
    "math": _words(
        "acos acosh asin asinh atan atan2 atanh ceil comb copysign cos cosh degrees dist e erf erfc exp expm1 "
        "fabs factorial floor fmod frexp fsum gamma gcd hypot inf isclose isfinite isinf isnan isqrt lcm "
        "ldexp lgamma log log10 log1p log2 modf nan nextafter perm pi pow prod radians remainder sin sinh "
        "sqrt tan tanh tau trunc ulp"
    ),
    "numpy": _words(
        "abs absolute add all allclose amax amin any arange argmax argmin argsort array array_equal asarray "
        "ascontiguousarray bool_ broadcast_to ceil clip concatenate cos cumprod cumsum diag diff dot einsum "
        "empty empty_like equal exp expand_dims eye finfo flatnonzero flip float32 float64 floor full "
        "full_like greater hstack inf int32 int64 isfinite isinf isnan less linspace log log10 log1p log2 "
        "logical_and logical_not logical_or matmul max maximum mean median meshgrid min minimum moveaxis "
        "multiply nan nan_to_num ndarray newaxis nonzero ones ones_like outer pad percentile pi power prod "
        "quantile ravel repeat reshape roll round searchsorted sign sin sort split sqrt square squeeze stack "
        "std subtract sum swapaxes take tan tanh tile trace transpose tril triu unique var vstack where zeros "
        "zeros_like"
    ),
    "numpy.linalg": _words("cholesky cond det eigh eigvalsh inv matrix_power norm pinv qr solve svd"),
    "torch.nn": frozenset[str](),  # for torch.nn.functional alone
}

ATTRIBUTES = _words(  # of any value: tensors, arrays, numbers, strings, lists, dictionaries
    "H T abs abs_ absolute absolute_ acos acos_ acosh acosh_ add add_ addbmm addbmm_ addcdiv addcdiv_ "
    "addcmul addcmul_ addmm addmm_ addmv addmv_ addr addr_ adjoint all allclose amax amin aminmax angle "
    "any append arccos arccos_ arccosh arccosh_ arcsin arcsin_ arcsinh arcsinh_ arctan arctan2 arctan2_ "
    "arctan_ arctanh arctanh_ argmax argmin argsort argwhere as_strided as_strided_ as_strided_scatter "
    "asin asin_ asinh asinh_ astype atan atan2 atan2_ atan_ atanh atanh_ baddbmm baddbmm_ bernoulli "
    "bernoulli_ bfloat16 bincount bits bitwise_and bitwise_and_ bitwise_left_shift bitwise_left_shift_ "
    "bitwise_not bitwise_not_ bitwise_or bitwise_or_ bitwise_right_shift bitwise_right_shift_ bitwise_xor "
    "bitwise_xor_ bmm bool broadcast_to byte cauchy_ cdouble ceil ceil_ cfloat chalf char cholesky "
    "cholesky_inverse cholesky_solve chunk clamp clamp_ clamp_max clamp_max_ clamp_min clamp_min_ clear "
    "clip clip_ clone conj conj_physical conj_physical_ contiguous copy copy_ copysign copysign_ corrcoef "
    "cos cos_ cosh cosh_ count count_nonzero cov cpu cross cummax cummin cumprod cumprod_ cumsum cumsum_ "
    "data deg2rad deg2rad_ det detach detach_ device diag diag_embed diagflat diagonal diagonal_scatter "
    "diff digamma digamma_ dim dim_order dist div div_ divide divide_ dot double dsplit dtype "
    "element_size endswith eps eq eq_ equal erf erf_ erfc erfc_ erfinv erfinv_ exp exp2 exp2_ exp_ expand "
    "expand_as expm1 expm1_ exponential_ extend fill_ fill_diagonal_ fix fix_ flat flatten flip fliplr "
    "flipud float float_power float_power_ floor floor_ floor_divide floor_divide_ fmax fmin fmod fmod_ "
    "frac frac_ frexp gather gcd gcd_ ge ge_ geometric_ geqrf ger get grad greater greater_ greater_equal "
    "greater_equal_ gt gt_ half hardshrink heaviside heaviside_ histc histogram hsplit hypot hypot_ i0 "
    "i0_ igamma igamma_ igammac igammac_ imag index index_add index_add_ index_copy index_copy_ "
    "index_fill index_fill_ index_put index_put_ index_reduce index_reduce_ index_select indices inner "
    "insert int inverse is_complex is_conj is_contiguous is_cpu is_cuda is_floating_point is_inference "
    "is_leaf is_neg is_nonzero is_same_size is_signed isclose isfinite isinf isnan isneginf isposinf "
    "isreal istft item items itemsize join keys kron kthvalue layout lcm lcm_ ldexp ldexp_ le le_ lerp "
    "lerp_ less less_ less_equal less_equal_ lgamma lgamma_ log log10 log10_ log1p log1p_ log2 log2_ log_ "
    "log_normal_ log_softmax logaddexp logaddexp2 logcumsumexp logdet logical_and logical_and_ "
    "logical_not logical_not_ logical_or logical_or_ logical_xor logical_xor_ logit logit_ logsumexp long "
    "lower lt lt_ lu lu_solve mH mT masked_fill masked_fill_ masked_scatter masked_scatter_ masked_select "
    "matmul matrix_exp matrix_power max maximum mean median min minimum mm mode moveaxis movedim msort "
    "mul mul_ multinomial multiply multiply_ mv mvlgamma mvlgamma_ nan_to_num nan_to_num_ nanmean "
    "nanmedian nanquantile nansum narrow narrow_copy nbytes ndim ndimension ne ne_ neg neg_ negative "
    "negative_ nelement new_empty new_empty_strided new_full new_ones new_tensor new_zeros nextafter "
    "nextafter_ nonzero nonzero_static norm normal_ not_equal not_equal_ numel numpy orgqr ormqr outer "
    "permute pinverse polygamma polygamma_ pop positive pow pow_ prelu prod qr quantile rad2deg rad2deg_ "
    "random_ ravel real reciprocal reciprocal_ relu relu_ remainder remainder_ remove renorm renorm_ "
    "repeat repeat_interleave requires_grad requires_grad_ reshape reshape_as resolution resolve_conj "
    "resolve_neg reverse roll rot90 round round_ rsqrt rsqrt_ scatter scatter_ scatter_add scatter_add_ "
    "scatter_reduce scatter_reduce_ select select_scatter sgn sgn_ shape short sigmoid sigmoid_ sign "
    "sign_ signbit sin sin_ sinc sinc_ sinh sinh_ size slice_scatter slogdet smallest_normal softmax sort "
    "split split_with_sizes sqrt sqrt_ square square_ squeeze squeeze_ start startswith std step stft "
    "stop storage_offset stride strip sub sub_ subtract subtract_ sum sum_to_size svd swapaxes swapaxes_ "
    "swapdims swapdims_ t t_ take take_along_dim tan tan_ tanh tanh_ tensor_split tile tiny to tolist "
    "topk trace transpose transpose_ triangular_solve tril tril_ triu triu_ true_divide true_divide_ "
    "trunc trunc_ type type_as unbind unflatten unfold uniform_ unique unique_consecutive unsqueeze "
    "unsqueeze_ update upper values var vdot view view_as vsplit where xlogy xlogy_ zero_"
)

BUILTINS = _words(
    "abs all any bool complex dict divmod enumerate filter float frozenset int isinstance len list map "
    "max min pow range reversed round set slice sorted str sum tuple zip ArithmeticError AssertionError "
    "Exception IndexError KeyError NotImplementedError OverflowError RuntimeError TypeError ValueError "
    "ZeroDivisionError"
)
INPUT_OUTPUT = frozenset({"breakpoint", "input", "open", "print"})
