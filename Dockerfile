# syntax=docker/dockerfile:1
# For a release name the base by its digest:
#   docker build --build-arg BASE=docker.io/library/python@sha256:… --build-arg REVISION=$(git rev-parse HEAD) .
ARG BASE=docker.io/library/python:3.13-slim-trixie

FROM ${BASE} AS build
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY alerts alerts
COPY exporter exporter
# The result holds no pip: --without-pip, and pip of the base installs from outside.
RUN python3 -m venv --without-pip /app \
 && python3 -m pip --python /app/bin/python3 install --no-cache-dir --only-binary=:all: --no-compile . \
 && /app/bin/python3 -m compileall -q /app \
 && mkdir /state

FROM ${BASE}
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="table-queue-exporter" \
      org.opencontainers.image.description="Prometheus exporter for job tables in PostgreSQL" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
COPY --from=build /app /app
# A volume mounted here for --state.dir takes over the owner.
COPY --from=build --chown=65532:65532 /state /var/lib/table-queue-exporter
ENV PATH=/app/bin:/usr/local/bin:/usr/bin:/bin \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
# Nobody's number: Kubernetes can tell that it is not root only from a number.
USER 65532:65532
EXPOSE 9947
HEALTHCHECK --interval=30s --timeout=6s --start-period=30s --retries=3 \
    CMD ["python3", "-m", "table_queue_exporter.probe"]
ENTRYPOINT ["table-queue-exporter"]
CMD ["serve"]
