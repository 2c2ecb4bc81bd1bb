"""A payment service whose background work is a table queue, run by Celery."""

from .app import app

__all__ = ["app"]
