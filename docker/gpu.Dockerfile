# The images `worker-gpu` and `training`, with torch for CUDA: docker build --file docker/gpu.Dockerfile --target worker-gpu .
# A release pins the base by its digest, as in Dockerfile. The packages bring the CUDA libraries that torch uses; of the base come
# the driver's interface and the compatibility libraries.
ARG CUDA_IMAGE=docker.io/nvidia/cuda:13.0.2-runtime-ubuntu24.04
ARG UV_VERSION=0.13.9

# hadolint ignore=DL3006
FROM ${CUDA_IMAGE} AS runtime
# The compiler is what torch.compile and Triton call. Security updates come with each build: no version is pinned.
# hadolint ignore=DL3008
RUN --mount=type=cache,target=/var/cache/apt,sharing=locked --mount=type=cache,target=/var/lib/apt,sharing=locked \
    rm -f /etc/apt/apt.conf.d/docker-clean \
    && apt-get update \
    && apt-get install --yes --no-install-recommends ca-certificates gcc git libc6-dev python3 python3-dev python3-venv \
    && ln -s /usr/bin/python3 /usr/local/bin/python \
    && groupadd --gid 10001 ptopt \
    && useradd --uid 10001 --gid ptopt --home-dir /tmp --no-create-home --shell /usr/sbin/nologin ptopt \
    && install --directory --owner ptopt --group ptopt /data /models /runs
ENV PATH=/opt/venv/bin:$PATH PYTHONPATH=/app PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 HOME=/tmp
WORKDIR /app

FROM runtime AS build
ARG UV_VERSION
RUN --mount=type=cache,target=/root/.cache/pip \
    python3 -m venv /opt/uv && /opt/uv/bin/pip install --quiet "uv==${UV_VERSION}" \
    && /opt/uv/bin/uv venv --quiet --python /usr/bin/python3 /opt/venv
ENV PATH=/opt/uv/bin:$PATH UV_LINK_MODE=copy VIRTUAL_ENV=/opt/venv

FROM build AS gpu-packages
RUN --mount=type=cache,target=/root/.cache/uv \
    --mount=type=bind,source=docker/gpu-requirements.txt,target=/tmp/requirements.txt \
    uv pip install --quiet --require-hashes --only-binary :all: --requirement /tmp/requirements.txt
# The index has no wheel of flash-attn: name one that fits torch, CUDA and Python, or go without. Then the worker logs at its
# start which attention it takes.
ARG FLASH_ATTN_WHEEL=
RUN --mount=type=cache,target=/root/.cache/uv \
    if [ -n "${FLASH_ATTN_WHEEL}" ]; then uv pip install --quiet --no-deps "${FLASH_ATTN_WHEEL}"; fi

FROM build AS training-packages
RUN --mount=type=cache,target=/root/.cache/uv \
    --mount=type=bind,source=docker/training-requirements.txt,target=/tmp/requirements.txt \
    uv pip install --quiet --require-hashes --only-binary :all: --requirement /tmp/requirements.txt
ARG FLASH_ATTN_WHEEL=
RUN --mount=type=cache,target=/root/.cache/uv \
    if [ -n "${FLASH_ATTN_WHEEL}" ]; then uv pip install --quiet --no-deps "${FLASH_ATTN_WHEEL}"; fi

FROM build AS code
COPY . /app/
RUN rm -rf /app/docker /app/*-requirements.txt \
    && python3 -m compileall -q --invalidation-mode unchecked-hash /app

# Review workers that run the model themselves.
FROM runtime AS worker-gpu
ARG VERSION=0.1.0
ARG REVISION=unknown
COPY --from=gpu-packages /opt/venv /opt/venv
COPY --from=code /app /app
LABEL org.opencontainers.image.title="ptopt worker with GPU" org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.source="https://github.com/ptopt/ptopt" \
      org.opencontainers.image.version="${VERSION}" org.opencontainers.image.revision="${REVISION}"
ENV PTOPT_HEARTBEAT_FILE=/tmp/heartbeat
USER 10001:10001
HEALTHCHECK --interval=60s --timeout=5s --start-period=600s --retries=2 \
    CMD ["sh", "-c", "test -n \"$(find /tmp/heartbeat -mmin -15)\""]
STOPSIGNAL SIGTERM
CMD ["celery", "-A", "worker", "worker", "-Q", "review", "--concurrency", "1"]

# Data, fine-tuning, evaluation, registry.
FROM runtime AS training
ARG VERSION=0.1.0
ARG REVISION=unknown
COPY --from=training-packages /opt/venv /opt/venv
COPY --from=code /app /app
LABEL org.opencontainers.image.title="ptopt training" org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.source="https://github.com/ptopt/ptopt" \
      org.opencontainers.image.version="${VERSION}" org.opencontainers.image.revision="${REVISION}"
USER 10001:10001
# A command ends by itself; there is no server to ask.
HEALTHCHECK NONE
STOPSIGNAL SIGTERM
ENTRYPOINT ["python", "-m", "training"]
CMD ["--help"]
