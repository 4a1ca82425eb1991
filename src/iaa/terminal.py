"""Names of files and classes on the terminal, where they must not act as commands or markup."""

from rich.markup import escape as escape_markup


def printable(text: str) -> str:
    """Text with control characters escaped, so that a name cannot send commands to the terminal.

    >>> printable("cat\\x1b[2J")
    'cat\\\\x1b[2J'
    """
    return text if text.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def escape(text: str) -> str:
    """The same for tables and lines of rich, in which square brackets are markup."""
    return escape_markup(printable(text))
