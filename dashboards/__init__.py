"""Grafana dashboards, built from typed Python into committed JSON."""
