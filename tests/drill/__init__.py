"""The exactness drill: writers of every temper, an exporter that is killed, and the truth."""
