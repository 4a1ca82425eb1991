"""Shell completion: commands, subcommands, presets and options as a script for bash or zsh."""

import importlib

from iaa.cli import VERBS
from iaa.cli.arguments import option_names, options_of
from iaa.errors import unknown
from iaa.presets import PRESETS
from iaa.presets.ablations import STUDIES

SHELLS = {"bash": "", "zsh": "autoload -Uz compinit bashcompinit && compinit && bashcompinit\n"}
"""What a shell needs before it understands bash's ``complete``."""

SCRIPT = """_iaa() {{
  local words="" current="${{COMP_WORDS[COMP_CWORD]}}"
  if [ "$COMP_CWORD" -eq 1 ]; then
    words="{commands}"
  else
    case "${{COMP_WORDS[1]}} ${{COMP_WORDS[2]}}" in
{cases}
    esac
  fi
  COMPREPLY=( $(compgen -W "$words" -- "$current") )
}}
complete -o default -F _iaa iaa"""


def completion_script(shell: str = "bash") -> str:
    """The script; file names are completed where no word fits."""
    if shell not in SHELLS:
        raise unknown("the shell", shell, SHELLS)
    cases = [
        f'      {pattern}) words="{" ".join(words)}" ;;'
        for verb in VERBS
        for pattern, words in _choices(verb)
    ]
    commands = " ".join([*VERBS, "--help", "--version"])
    return SHELLS[shell] + SCRIPT.format(commands=commands, cases="\n".join(cases))


def _choices(verb: str) -> list[tuple[str, list[str]]]:
    """Shell patterns of a command and its subcommand, and the words that can follow."""
    module = importlib.import_module(f"iaa.cli.cmd_{verb}")
    options = getattr(module, f"{verb.capitalize()}Options", None)
    if options is not None:
        studies = list(STUDIES) if verb == "ablate" else []
        return [(f'"{verb} "*', [*studies, *PRESETS, *_words(option_names(options))])]
    if isinstance(module.command, dict):
        below = [
            (f'"{verb} {name}"', _words(options_of(function))) for name, function in module.command.items()
        ]
        return [*below, (f'"{verb} "*', [*module.command])]
    return [(f'"{verb} "*', _words(options_of(module.command)))]


def _words(options: list[str]) -> list[str]:
    return [f"--{option}" for option in (*options, "help")]
