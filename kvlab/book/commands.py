"""`kvlab book ...`: what makes the chapter's other forms out of the notebooks."""

import time
from pathlib import Path
from typing import Annotated

import typer

Folder = Annotated[str, typer.Argument(help="The folder to write them into.")]
Force = Annotated[bool, typer.Option("--force", help="Replace edited files; keep them renamed.")]

app = typer.Typer(help="The chapter's other forms, made from the notebooks.", no_args_is_help=True)


@app.callback()
def book() -> None:
    """The chapter's other forms, made from the notebooks."""


@app.command()
def build(
    out: Annotated[Path | None, typer.Option(help="The site's folder; default: site/.")] = None,
) -> None:
    """Build the static site; it works from files alone, with no server and no network."""
    from kvlab.cli import plain_errors
    from kvlab.cli_signals import sigterm_interrupts

    with plain_errors(), sigterm_interrupts():
        from kvlab.book import build as work
        from kvlab.book.manifest import clone_root

        started = time.perf_counter()
        site = work.build(clone_root(), out)
        seconds = time.perf_counter() - started
        typer.echo(f"{site / 'index.html'}: built and checked in {seconds:.1f} s")


@app.command()
def claims(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON list.")] = False,
) -> None:
    """List the chapter's claims: the cell of each, what it printed, and the cuts that break it."""
    from kvlab.cli import find_pages, plain_errors

    with plain_errors():
        from kvlab.book import claims as report

        found = report.claims(*find_pages())
        typer.echo(report.as_json(found) if as_json else report.render(found))


@app.command()
def student(folder: Folder, force: Force = False) -> None:
    """Write the notebooks for students: no outputs, no solutions."""
    _write_set("student", folder, force)
    typer.echo("hint() and check() work as always. solution() still answers where it is installed:")
    typer.echo("to do without, delete the folder kvlab/exercises/solutions from that installation.")


@app.command()
def instructor(folder: Folder, force: Force = False) -> None:
    """Write the notebooks for a teacher: solutions, speaker notes with minutes, slides."""
    _write_set("instructor", folder, force)
    typer.echo(f"{_where_to_open(folder)} Run all cells of a page first: then its views are live.")


def _where_to_open(folder: str) -> str:
    """JupyterLab shows the files below the folder that it was started for, and no others."""
    from kvlab.cli import find_pages

    root, _ = find_pages()
    place = Path(folder).resolve()
    if place.is_relative_to(root.resolve()):
        place = place.relative_to(root.resolve())
        return f"To open it: kvlab lab, and there the folder {place} in the file browser."
    return f"kvlab lab shows only what lies in {root}; to open this: jupyter lab {folder}."


def _write_set(kind: str, folder: str, force: bool) -> None:
    from kvlab.cli import find_pages, plain_errors

    with plain_errors():
        from datetime import datetime

        from kvlab.book import sets

        if not folder.strip():  # Path("") is this folder, and nobody has named it
            raise ValueError(f"FOLDER is {folder!r}; give the name of a folder, such as students")
        _, pages = find_pages()
        changed = sets.write(kind, pages, Path(folder), force=force, now=datetime.now())
        typer.echo("\n".join(map(str, changed)) or f"{folder} is up to date")
