"""Modules that can be called, for names that are both a module and its main function.

Importing ``iaa.train`` binds the attribute ``train`` of the package to the module, and so hides a function of
that name. A module that can be called keeps ``iaa.train(config)`` working, whatever was imported before.
"""

import inspect
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any


def make_callable(module: str, function: Callable[..., Any]) -> None:
    """Let the module with this name be called like the function."""
    members = {"__call__": staticmethod(function), "__signature__": inspect.signature(function)}
    sys.modules[module].__class__ = type("CallableModule", (ModuleType,), members)
