# ddlsim in a container. On a CPU:
#   docker build -t ddlsim . && docker run --rm -v "$PWD/runs:/work/runs" ddlsim run smoke
# With CUDA kernels, for a machine with NVIDIA's container runtime (add --gpus all to docker run):
#   docker build -t ddlsim:cuda --build-arg BASE=nvidia/cuda:12.8.1-devel-ubuntu24.04 .
# TORCH_INDEX is pip's --index-url for torch and torchvision, e.g. the index of PyTorch's CPU-only builds,
# which are gigabytes smaller; empty for pip's default. EXTRAS: of pyproject.toml, e.g. plot,ray for a cluster.
ARG BASE=python:3.12-slim-bookworm

FROM ${BASE} AS build
ARG TORCH_INDEX=""
# python:* images have Python in /usr/local; others (Debian, Ubuntu, NVIDIA) get Python from their distribution.
RUN apt-get update \
 && apt-get install -y --no-install-recommends g++ make \
      $(test -x /usr/local/bin/python3 || echo python3-dev python3-venv) \
 && rm -rf /var/lib/apt/lists/*
RUN "$(command -v /usr/local/bin/python3 || command -v python3)" -m venv /opt/ddlsim
ENV PATH=/opt/ddlsim/bin:$PATH PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
RUN pip install ${TORCH_INDEX:+--index-url "$TORCH_INDEX"} torch torchvision
COPY . /src
ARG EXTRAS=plot
RUN pip install "/src[${EXTRAS}]"

FROM ${BASE}
RUN test -x /usr/local/bin/python3 \
 || (apt-get update && apt-get install -y --no-install-recommends python3 && rm -rf /var/lib/apt/lists/*)
COPY --from=build /opt/ddlsim /opt/ddlsim
ENV PATH=/opt/ddlsim/bin:$PATH
WORKDIR /work
ENTRYPOINT ["ddlsim"]
CMD ["--help"]
