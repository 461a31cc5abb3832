# Prometheus as compose.yaml expects it, from Debian's package: for machines without an image registry.
# The build context is the folder with the programs.
ARG BASE
FROM ${BASE}
COPY prometheus promtool /usr/local/bin/
RUN install -d -o nobody -g nogroup /prometheus
USER 65534:65534
ENTRYPOINT ["prometheus"]
