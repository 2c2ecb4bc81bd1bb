"""The Helm chart, and the generator of its copied and derived files."""
