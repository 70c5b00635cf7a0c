# One image for every role: `sostenuto worker`, `sostenuto db upgrade`, any other command.
FROM python:3.13-slim-trixie

# Agents' own tools: git for repositories in a workspace.
RUN apt-get update \
    && apt-get install -y --no-install-recommends git \
    && rm -rf /var/lib/apt/lists/*

WORKDIR /app
COPY requirements.txt ./
RUN pip install --no-cache-dir --disable-pip-version-check --require-hashes -r requirements.txt

COPY pyproject.toml README.md ./
COPY jobs jobs
COPY worker worker
COPY storage storage
COPY sostenuto sostenuto
RUN pip install --no-cache-dir --disable-pip-version-check --no-deps --no-build-isolation .

# Not root: what a workspace's commands could do in the container ends at this user. The volume inherits the owner.
RUN useradd --uid 10001 --create-home sostenuto \
    && install -d -o sostenuto -g sostenuto -m 0700 /data
USER sostenuto
WORKDIR /data
VOLUME /data
ENV SOSTENUTO_DATA_DIR=/data PYTHONUNBUFFERED=1

ENTRYPOINT ["sostenuto"]
CMD ["worker"]
