"""``python -m table_queue_exporter``."""

from .cli import main

main()
