"""A run behind HTTP: a page to search with, and a documented API. See ``iaa.serve.app``."""
