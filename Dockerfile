# The environment of `make`, from the same locks, for the devices virtual and cpu: docker build --tag rehearsal .
# To renew the digest: docker buildx imagetools inspect python:3.11-slim
FROM python:3.11.15-slim@sha256:90744cff8f32887f075c47d747a173ff333e9e98801667af93c357fa9f5e28ff

# vLLM's CPU kernels need libnuma. Debian keeps no old versions, so none is pinned.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends libnuma1 \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --create-home --uid 1000 rehearsal \
    && install --directory --owner 1000 --group 1000 /home/rehearsal/results

# An index with CPU builds of torch makes the image smaller by the CUDA libraries.
ARG PIP_EXTRA_INDEX_URL
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore
WORKDIR /opt/rehearsal

# Torch comes last and with its own dependencies, most of which the lock has brought: see requirements/torch.txt.
COPY requirements/cpu.txt requirements/
RUN pip install --quiet --no-deps --require-hashes -r requirements/cpu.txt
COPY requirements/torch.txt requirements/
RUN pip install --quiet --no-warn-conflicts -r requirements/torch.txt

# Last, so that a change of the code repeats only this. Its user cannot write byte code, so it is compiled here.
COPY . .
RUN pip install --quiet --no-deps --no-build-isolation --editable . \
    && python -m compileall -q .

USER 1000
WORKDIR /home/rehearsal

EXPOSE 8765
# Of `rehearse serve` on its own port; 503 while vLLM loads.
HEALTHCHECK --interval=10s --timeout=5s --start-period=120s \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8765/health', timeout=4)"]
ENTRYPOINT ["rehearse"]
CMD ["--help"]
