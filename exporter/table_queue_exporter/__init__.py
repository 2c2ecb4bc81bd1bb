"""A Prometheus exporter for table queues: background work kept in a PostgreSQL table."""

__version__ = "0.1.0"
