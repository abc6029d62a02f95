"""The command line, as the reference shows it: each command with its options, from the commands."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Option:
    """What a command takes. shown: "NOTEBOOK", or "--port" and its other spellings."""

    shown: str
    default: str  # empty where there is none
    help: str


@dataclass(frozen=True)
class Command:
    name: str  # "kvlab book build"
    doc: str
    options: tuple[Option, ...]

    @property
    def anchor(self) -> str:
        return self.name.replace(" ", "-")


def commands() -> list[Command]:
    """Every command of `kvlab`, in the order of `kvlab --help`. Imports no torch."""
    from typer.main import get_command

    from kvlab.cli import app

    return list(_walk("kvlab", get_command(app)))


def _walk(name: str, command: Any) -> Iterator[Command]:
    inner = getattr(command, "commands", None)
    if inner is None:
        yield Command(name, command.help or "", tuple(map(_option, command.params)))
        return
    for short, one in inner.items():
        yield from _walk(f"{name} {short}", one)


def _option(given: Any) -> Option:
    is_option = given.param_type_name == "option"
    spelled = [*given.opts, *given.secondary_opts] if is_option else [given.name.upper()]
    default = given.default
    if default is None or (isinstance(default, bool) and not given.secondary_opts):
        shown = "" if is_option or not given.required else "required"
    elif isinstance(default, bool):
        shown = spelled[0] if default else spelled[-1]
    else:
        shown = str(default)
    return Option(" / ".join(spelled), shown, given.help or "")
