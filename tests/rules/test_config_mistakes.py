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
    "overlap that was switched off for correctness": (
        "zero2.json",
        '{"zero_optimization": {"stage": 2, "overlap_comm": false, "offload_optimizer": {"device": "cpu"}}}',
    ),
    "overlap with pipelines, which switch it off": (
        "ds_config.json",
        '{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 1, "overlap_comm": false}}',
    ),
    "packing of batches of one": (
        "1B_qat.yaml",
        """
        tokenizer: {_component_: torchtune.models.llama3.llama3_tokenizer, max_seq_len: 8192}
        dataset: {_component_: torchtune.datasets.alpaca_dataset, packed: False}
        batch_size: 1
        """,
    ),
    "packing in a trial": (
        "devtools/chat_template.yml",
        "base_model: a/b\ndatasets: []\nmicro_batch_size: 4\nmax_steps: 10\nsample_packing: false\n",
    ),
    "shared memory of one process without workers": (
        "job.yaml",
        """
        apiVersion: batch/v1
        kind: Job
        spec:
          containers:
            - name: train
              image: me/train
              command: [torchrun, --nproc_per_node=1, main.py, train, --workers=0]
              resources: {limits: {nvidia.com/gpu: 1}}
        """,
    ),
    "timers that wait once in a step": (
        "ds_config.json",
        '{"zero_optimization": {"stage": 3}, "wall_clock_breakdown": true}',
    ),
    "workers that a comment gives a reason for": (
        "train.yaml",
        "per_device_train_batch_size: 1\n# Reduce memory usage by disabling workers\ndataloader_num_workers: 0\n",
    ),
    "the cache of a build without CUDA": (
        "Dockerfile",
        "FROM python:3.12\nRUN pip install torch --extra-index-url https://download.pytorch.org/whl/cpu\n",
    ),
    "the cache of an image that cannot be built any more": (
        "Dockerfile",
        "FROM nvidia/cuda:10.2-cudnn7-devel-ubuntu18.04\nRUN pip install torch==1.10.0\n",
    ),
    "the cache of an image for a Python without support": (
        "Dockerfile",
        "FROM ubuntu:22.04\nRUN conda create -n a python=3.6 && pip install torch==1.10.0\n",
    ),
    "the cache of a branch that may not run": (
        "Dockerfile",
        'FROM ubuntu:24.04\nRUN if [ "$A" = source ]; then make; else pip install torch; fi\n',
    ),
    "small requirements behind a copy": (
        "Dockerfile",
        "FROM python:3.12\nCOPY . .\nRUN pip install -r docs/requirements.txt\n",
    ),
    "torch that is to be fresh": (
        "Dockerfile",
        "FROM python:3.12\nCOPY . .\nRUN pip install --no-cache-dir --pre torch --index-url https://download.pytorch.org/whl/nightly/cu130\n",
    ),
    "torch installed again in a stage that is thrown away": (
        "Dockerfile",
        (
            "FROM python:3.12 AS b\nRUN pip install -q --no-cache-dir torch\nRUN pip install --no-cache-dir torch==2.9.0\n"
            "FROM python:3.12-slim\nCOPY --from=b /venv /venv\n"
        ),
    ),
    "weights of a small model": (
        "demo.yaml",
        "services:\n  s: {image: vllm/vllm-openai, command: --model meta-llama/Llama-3.2-1B-Instruct}\n",
    ),
    "the CUDA build on a runner that is gone": (
        ".github/workflows/ci.yml",
        "on: [push]\njobs:\n  t:\n    runs-on: ubuntu-20.04\n    steps:\n      - run: pip install torch\n",
    ),
    "the CUDA build where pages alone start it": (
        ".github/workflows/docs.yml",
        (
            "on:\n  push: {paths: ['docs/**', '.github/workflows/docs.yml']}\njobs:\n  t:\n    runs-on: ubuntu-latest\n    steps:\n"
            "      - run: pip install torch\n"
        ),
    ),
}


@pytest.mark.parametrize("kind", MISTAKES)
def test_a_wrong_comment_is_not_made_again(kind: str) -> None:
    path, text = MISTAKES[kind]
    file = whole_file(path, textwrap.dedent(text).encode())
    found = review_files([file], config=Config(), facts=NO_FACTS, limit_to_change=False)
    assert found.files_reviewed == 1 and not found.not_reviewed
    assert [(finding.name, finding.message) for finding in found.findings] == []
