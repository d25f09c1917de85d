"""Texts that a pull request may hold to reach past the prompt."""

from __future__ import annotations

from hypothesis import strategies as st

SPECIAL = (
    # SmolLM2
    "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<repo_name>", "<reponame>", "<file_sep>", "<filename>", "<gh_stars>",
    "<issue_start>", "<issue_comment>", "<issue_closed>", "<jupyter_start>", "<jupyter_text>", "<jupyter_code>",
    "<jupyter_output>", "<jupyter_script>", "<empty_output>",
    # Llama 2 and 3
    "<s>", "</s>", "<unk>", "[INST]", "[/INST]", "<<SYS>>", "<</SYS>>", "<|begin_of_text|>", "<|eot_id|>", "<|eom_id|>",
    "<|start_header_id|>", "<|end_header_id|>", "<|python_tag|>", "<|reserved_special_token_0|>",
    # Qwen
    "<think>", "</think>", "<tool_call>", "</tool_call>", "<|fim_prefix|>", "<|repo_name|>", "<|vision_start|>", "<|box_end|>",
    # Gemma
    "<bos>", "<eos>", "<pad>", "<mask>", "<start_of_turn>", "<end_of_turn>", "<unused99>", "<2mass>", "<start_of_image>",
    # Mistral
    "[TOOL_CALLS]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[IMG_BREAK]", "[SYSTEM_PROMPT]", "[THINK]", "[control_8]",
    # DeepSeek
    "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜User｜>", "<｜Assistant｜>", "<｜tool▁calls▁begin｜>", "<|EOT|>",
    # Phi
    "<|system|>", "<|user|>", "<|assistant|>", "<|end|>", "<|placeholder1|>", "<|dummy_0|>",
    # others
    "[CLS]", "[SEP]", "[PAD]", "[MASK]", "[UNK]", "[gMASK]", "[MASK]", "[sMASK]", "<sop>", "<eop>", "<fim_hole>", "<0x0A>",
    ">>TITLE<<", ">>QUESTION<<", "<|START_OF_TURN_TOKEN|>", "<EOS_TOKEN>", "<extra_id_0>",
)  # fmt: skip
UNSEEN = "\u200b\u200d\u2060\ufeff\u202e\u2066\u00ad\u180e\ufe0f\U000e0041\u3164"

_pieces = st.one_of(
    st.sampled_from(SPECIAL),
    st.sampled_from(SPECIAL).flatmap(lambda t: st.integers(1, len(t) - 1).map(lambda at: t[:at])),
    st.sampled_from(SPECIAL).flatmap(
        lambda t: st.tuples(st.integers(1, len(t) - 1), st.sampled_from(UNSEEN)).map(
            lambda cut: t[: cut[0]] + cut[1] + t[cut[0] :]
        )
    ),
    st.text(alphabet="<>|[]/ \n\t\r\x0b\x0c\x85\u2028｜＜＞［INSTseot_", max_size=12),
    st.text(st.characters(), max_size=12),
    st.text(st.characters(categories=["Cs", "Cc", "Cf", "Zs", "Zl", "Zp"]), max_size=4),
    st.text(max_size=12),
)
texts = st.lists(_pieces, max_size=12).map("".join)
