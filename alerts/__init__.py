"""Alert rules, runbooks and an Alertmanager example, generated from typed Python."""
