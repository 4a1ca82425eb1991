"""A search page and an HTTP API for a run. See ``iaa.serve.app``."""
