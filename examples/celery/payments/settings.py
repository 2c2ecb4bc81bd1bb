"""What the environment may set. The defaults are those to begin with in production."""

import os
from pathlib import Path

DATABASE_DSN = os.environ.get("DATABASE_DSN", "postgresql://localhost/payments")
BROKER_DIR = Path(os.environ.get("BROKER_DIR", "/tmp/payments-broker"))
CLAIM_EVERY = float(os.environ.get("CLAIM_EVERY", "5"))
"""Seconds between two claims."""
BATCH = int(os.environ.get("BATCH", "20"))
"""Tasks that one claim takes at most: what the workers end well within half a lease."""
LEASE = float(os.environ.get("LEASE", "300"))
"""Seconds for which a claimed task belongs to its worker."""
MAX_ATTEMPTS = int(os.environ.get("MAX_ATTEMPTS", "7"))
FIRST_BACKOFF = float(os.environ.get("FIRST_BACKOFF", "60"))
"""Seconds after the first failure; doubled after each further one, plus jitter of up to half."""
