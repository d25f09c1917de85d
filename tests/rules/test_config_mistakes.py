"""Kinds of wrong comments that readers of real configurations found: none of them is made again."""

from __future__ import annotations

import textwrap

import pytest

from ptopt.change import whole_file
from ptopt.config import Config
from ptopt.project.facts import NO_FACTS
from ptopt.review import review_files

SERVER = """
apiVersion: apps/v1
kind: Deployment
spec:
  template:
    spec:
      containers:
        - name: {name}
          image: {image}
          livenessProbe: {{httpGet: {{path: /health, port: 8000}}}}
          resources: {{limits: {{{limits}}}}}
"""
MISTAKES = {
    "eager attention for a model with attention sinks": (
        "sft.yaml",
        "model_name_or_path: openai/gpt-oss-20b\nper_device_train_batch_size: 1\nattn_implementation: eager\n",
    ),
    "eager attention that a comment calls required": (
        "v4.yaml",
        "base_model: a/b\ndatasets: []\nnum_epochs: 1\nattn_implementation: eager  # required: the kernels own the path\n",
    ),
    "eager attention on an accelerator without fused kernels": (
        "conf/ascend/sft.yaml",
        "model_name_or_path: a/b\nstage: sft\nflash_attn: disabled\n",
    ),
    "packing for a model that keeps a state": (
        "falcon.yaml",
        "base_model: tiiuae/Falcon-H1-3B-Base\ndatasets: []\nnum_epochs: 1\nsample_packing: false\n",
    ),
    "packing for a model of images": (
        "recipe.yaml",
        """
        tokenizer: {_component_: torchtune.models.llama3_2_vision.llama3_2_vision_transform, max_seq_len: 8192}
        model: {_component_: torchtune.models.llama3_2_vision.llama3_2_vision_11b}
        dataset: {_component_: torchtune.datasets.alpaca_dataset, packed: False}
        """,
    ),
    "settings with dashes, of another library that hands the file on": (
        "neox.yml",
        "zero_optimization: {stage: 1}\nnum-layers: 12\nhidden-size: 768\n",
    ),
    "a renamed setting of an older version": (
        "trainer/full.yaml",
        "trainer:\n  max_epochs: 1\n  gpus: 1\n  reload_dataloaders_every_epoch: False\n",
    ),
    "templates of which a tuner changes the values": (
        "deepspeed/autotuning/config_templates/template_zero2.json",
        '{"zero_optimization": {"stage": 2, "overlap_comm": false}}',
    ),
    "a profiler of one step": (
        "deepspeed_config.json",
        '{"zero_optimization": {"stage": 2}, "flops_profiler": {"enabled": true, "profile_step": -1}}',
    ),
    "32 bits for inference": (
        "conf/magpietts_inference.yaml",
        "trainer:\n  accelerator: gpu\n  max_epochs: 1\n  precision: 32\n",
    ),
    "the CUDA build in a step for macOS": (
        ".github/workflows/ci.yml",
        """
        on: [push]
        jobs:
          test:
            runs-on: ${{ matrix.os }}
            strategy: {matrix: {os: [ubuntu-latest, macos-14]}}
            steps:
              - if: matrix.os == 'macos-14'
                run: pip install torch
        """,
    ),
    "the CUDA build in a job that compiles with CUDA": (
        ".github/workflows/build.yml",
        """
        on: [push]
        jobs:
          build:
            runs-on: ubuntu-latest
            steps:
              - run: docker run image bash -c 'apt-get install libnccl-dev && pip install cmake torch'
        """,
    ),
    "the CUDA build in a workflow for releases": (
        ".github/workflows/publish.yml",
        """
        on: {push: {tags: ["v*"]}}
        jobs:
          publish:
            runs-on: ubuntu-latest
            steps:
              - run: pip install torch packaging twine
        """,
    ),
    "torch where the shell decides": (
        "Dockerfile",
        'FROM nvcr.io/nvidia/pytorch:25.03-py3\nRUN if [ -n "$V" ]; then pip install --no-cache-dir torch==$V; fi\n',
    ),
    "the cache of small packages": (
        "Dockerfile",
        "FROM python:3.12\nRUN pip install deepspeed torchaudio jax\n",
    ),
    "an image for TensorFlow": (
        "Dockerfile",
        "FROM nvcr.io/nvidia/tensorflow:24.01-py3\nADD . /workspace\nRUN pip install -r requirements.txt\n",
    ),
    "a probe of an operator": (
        "operator.yaml",
        SERVER.format(name="manager", image="lmcache/production-stack-operator", limits="nvidia.com/gpu: 1"),
    ),
    "a probe of a router": (
        "router.yaml",
        SERVER.format(name="vllm-router", image="vllm/vllm-openai", limits="nvidia.com/gpu: 1"),
    ),
    "a probe of a small model on a CPU": (
        "cpu.yaml",
        SERVER.format(name="kserve", image="registry/vllm-cpu:1", limits="cpu: 8"),
    ),
    "shared memory for TensorFlow": (
        "tfjob.yaml",
        """
        apiVersion: kubeflow.org/v1
        kind: TFJob
        spec:
          containers:
            - {name: tensorflow, image: me/model, command: [python, train.py], resources: {limits: {nvidia.com/gpu: 1}}}
        """,
    ),
    "shared memory between servers with one GPU each": (
        "fleet.yaml",
        """
        apiVersion: v1
        kind: Pod
        spec:
          containers:
            - name: worker
              image: vllm/vllm-openai
              args: [--model, /models/a, --tensor-parallel-size, "2"]
              resources: {limits: {nvidia.com/gpu: 1}}
        """,
    ),
}


@pytest.mark.parametrize("kind", MISTAKES)
def test_a_wrong_comment_is_not_made_again(kind: str) -> None:
    path, text = MISTAKES[kind]
    file = whole_file(path, textwrap.dedent(text).encode())
    found = review_files([file], config=Config(), facts=NO_FACTS, limit_to_change=False)
    assert found.files_reviewed == 1 and not found.not_reviewed
    assert [(finding.name, finding.message) for finding in found.findings] == []
