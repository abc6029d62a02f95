"""The command line: `kvlab lab | reset | doctor | memory | generate | serve | load | ...`.

Each command imports what it needs when it runs, so that `kvlab --help` answers at once. A mistake
of the user's (ValueError, OSError) is one line on stderr and exit code 2; a fault of ours is a
traceback.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from kvlab import cli_load_options
from kvlab.book import commands as book_commands

app = typer.Typer(
    help="A small inference engine whose KV cache can be watched.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.add_typer(book_commands.app, name="book")
START_PAGE = "notebooks/21_0_start.ipynb"
NO_ROOM = ("failed to map segment", "annot allocate memory")  # what the system's loader says


@contextmanager
def plain_errors() -> Iterator[None]:
    """Turn a mistake of the user's into one line on stderr and exit code 2."""
    try:
        yield
    except BrokenPipeError:  # the reader of our output went away, as in `kvlab generate ... | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(1) from None
    except (ValueError, OSError, MemoryError, ImportError) as error:
        if isinstance(error, ImportError) and not any(sign in str(error) for sign in NO_ROOM):
            raise
        typer.echo(f"kvlab: {_one_line(error)}", err=True)
        raise typer.Exit(2) from None


def _one_line(error: Exception) -> str:
    """What an exception says; one that says nothing is known by its kind."""
    if isinstance(error, ImportError):
        return f"out of memory while a package was loaded ({error})"
    return str(error) or ("out of memory" if isinstance(error, MemoryError) else repr(error))


@app.command()
def doctor() -> None:
    """Say what this machine has, what is amiss, and what to do about it."""
    from kvlab import doctor as examination

    with plain_errors():
        found = examination.findings()
        typer.echo(examination.render(found))
    if any(finding.status == "problem" for finding in found):
        raise typer.Exit(1)


@app.command()
def lab(
    port: Annotated[int, typer.Option(help="The port; the next free one if it is taken.")] = 8888,
    browser: Annotated[bool, typer.Option(help="Open a browser.")] = True,
) -> None:
    """Open JupyterLab on the start page, on 127.0.0.1."""
    from kvlab import workbook
    from kvlab.core.checked import whole

    with plain_errors():
        whole("port", port, 0, 65535)
        root, pages = find_pages()
        try:
            from jupyterlab.labapp import LabApp
        except ImportError as error:
            remedy = 'run make lab in a clone, or: pip install "kvlab[lab]"'
            raise ValueError(f"JupyterLab is missing ({error}); {remedy}") from None
        if browser and not has_display():
            typer.echo("No display here: open the address that JupyterLab prints below.")
            browser = False
        copies, beside = workbook.prepare(root, pages)
        for page in beside:
            typer.echo(f"A newer page is beside the one that you have edited: {page}")
        typer.echo(f"Your own copies of the notebooks are in {copies}; to end: Ctrl-C twice.")
        os.chdir(root)
        LabApp.launch_instance(argv=lab_arguments(root, port, browser))


@app.command()
def reset(
    notebook: Annotated[str, typer.Argument(help="As 21.6, or 21_6_growth.")],
) -> None:
    """Give a page of your workbook back as shipped; your copy is kept beside it."""
    with plain_errors():
        from datetime import datetime

        from kvlab import workbook

        page, kept = workbook.reset(*find_pages(), notebook, datetime.now())
        if kept:
            typer.echo(f"Your copy is kept as {kept}")
        typer.echo(f"{page} is as shipped; if it is open in JupyterLab, close it and open it again")


def find_pages() -> tuple[Path, Path]:
    """The reader's folder, and the shipped notebooks: those of a clone, or else the installed.

    The clone is the one that the running package lies in. Without it, the reader's folder is the
    working directory; a folder `notebooks` there is the reader's, and holds no shipped page.
    """
    from kvlab.workbook import CLONE, INSTALLED

    if (CLONE / START_PAGE).is_file() and (CLONE / "book.toml").is_file():
        return CLONE, CLONE / "notebooks"
    if (INSTALLED / Path(START_PAGE).name).is_file():
        return Path.cwd(), INSTALLED
    raise ValueError(
        f"{INSTALLED}, where pip puts the notebooks, has none: run make lab in a clone, or install "
        "kvlab in a virtual environment"
    )


def has_display() -> bool:
    """Whether a browser could open a window."""
    if sys.platform in ("darwin", "win32"):
        return True
    return any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"))


def lab_arguments(root: Path, port: int, browser: bool) -> list[str]:
    """JupyterLab's arguments: this machine alone, the start page, no request to elsewhere."""
    arguments = [
        "--ip=127.0.0.1",
        f"--port={port}",
        f"--ServerApp.root_dir={root}",
        f"--LabApp.default_url=/lab/tree/workbook/{Path(START_PAGE).name}",
        "--ServerApp.log_level=WARN",  # the address is printed at any level
        "--LabApp.log_level=WARN",
        "--LabApp.news_url=None",
        "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
    ]
    if not browser:
        arguments.append("--no-browser")
    if hasattr(os, "geteuid") and os.geteuid() == 0:  # as in a container
        arguments.append("--allow-root")
    return arguments


@app.command()
def memory(
    config: Annotated[str, typer.Argument(help="A config.json, 'tiny', or a preset's name.")],
    context: Annotated[int | None, typer.Option(help="Positions of each request.")] = None,
    requests: Annotated[int, typer.Option(help="How many requests.")] = 1,
    dtype: Annotated[str, typer.Option(help="bf16, fp16, fp32, fp8, int8, q8_0 or q4_0.")] = "bf16",
    scale_bytes: Annotated[int | None, typer.Option(help="Of a scale; 4 for int8.")] = None,
    tp: Annotated[int, typer.Option(help="Ranks of tensor parallelism.")] = 1,
    block_size: Annotated[int, typer.Option(help="Positions a block.")] = 16,
    blocks: Annotated[int | None, typer.Option(help="Blocks of the pool.")] = None,
    budget: Annotated[str | None, typer.Option(help="For one rank's cache, as 80GiB.")] = None,
    max_num_batched_tokens: Annotated[int, typer.Option(help="Tokens a step.")] = 2048,
    window_policy: Annotated[
        str, typer.Option(help="capped, dynamic (window - 1), reserve_full or freed.")
    ] = "capped",
    mla: Annotated[str, typer.Option(help="latent or expanded.")] = "latent",
    weights: Annotated[
        str | None, typer.Option(help="Of one rank, taken from the budget first.")
    ] = None,
    other: Annotated[
        str | None, typer.Option(help="Other peak memory, taken from the budget first.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Say what a model's KV cache takes, from its config.json, to the byte."""
    with plain_errors():
        from kvlab import cli_memory

        code = cli_memory.run(
            config,
            context=context,
            requests=requests,
            dtype=dtype,
            scale_bytes=scale_bytes,
            tp=tp,
            block_size=block_size,
            blocks=blocks,
            budget=budget,
            max_num_batched_tokens=max_num_batched_tokens,
            window_policy=window_policy,
            mla=mla,
            weights=weights,
            other=other,
            as_json=as_json,
        )
    raise typer.Exit(code or 0)


@app.command()
def generate(
    text: Annotated[str, typer.Argument(help="The prompt.")],
    model: Annotated[str, typer.Option(help="tiny, or a folder in Hugging Face layout.")] = "tiny",
    max_tokens: Annotated[int, typer.Option(help="How many tokens at most.")] = 32,
    temperature: Annotated[float, typer.Option(help="0 takes the likeliest token.")] = 0.0,
    seed: Annotated[int | None, typer.Option(help="Repeats a random choice.")] = None,
    trace: Annotated[Path | None, typer.Option(help="Write each step's snapshot here.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Continue a text, token by token."""
    with plain_errors():
        from kvlab import cli_generate

        code = cli_generate.run(
            text,
            model=model,
            max_tokens=max_tokens,
            temperature=temperature,
            seed=seed,
            trace=trace,
            as_json=as_json,
        )
    raise typer.Exit(code or 0)


app.command(context_settings={"allow_extra_args": True})(cli_load_options.load)


@app.command(context_settings={"allow_extra_args": True})
def serve(
    context: typer.Context,
    model: Annotated[str, typer.Option(help="tiny, or a folder in Hugging Face layout.")] = "tiny",
    host: Annotated[str, typer.Option(help="Another than this machine needs a key.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="The port; 0 takes a free one.")] = 8000,
    api_key: Annotated[
        str | None, typer.Option(envvar="KVLAB_API_KEY", help="What clients must send.")
    ] = None,
    block_size: Annotated[int, typer.Option(help="Positions a block.")] = 16,
    num_blocks: Annotated[int | None, typer.Option(help="Blocks of the pool.")] = None,
    cpu_blocks: Annotated[int | None, typer.Option(help="Blocks of a tier in host memory.")] = None,
    max_model_len: Annotated[int | None, typer.Option(help="Longest sequence.")] = None,
    max_num_seqs: Annotated[int, typer.Option(help="Sequences running at once.")] = 64,
    max_num_batched_tokens: Annotated[int, typer.Option(help="Positions a step.")] = 2048,
    prefix_caching: Annotated[bool, typer.Option(help="Share prefixes of prompts.")] = True,
    order: Annotated[str, typer.Option(help="fcfs or priority.")] = "fcfs",
    max_queue: Annotated[int, typer.Option(help="Sequences that may wait; more get a 429.")] = 256,
    max_body: Annotated[int, typer.Option(help="Bytes of a request at most.")] = 4 * 2**20,
    grace: Annotated[float, typer.Option(help="Seconds to finish in when it is stopped.")] = 10.0,
    stream_interval: Annotated[int, typer.Option(help="Tokens to a piece of a stream.")] = 1,
    early_role: Annotated[bool, typer.Option(help="Send a chat's role before any text.")] = False,
    lora_modules: Annotated[
        list[str] | None, typer.Option(help="NAME=FOLDER of LoRA adapters; NAME is their model.")
    ] = None,
) -> None:
    """Serve a model over HTTP, as OpenAI's API does, on this machine."""
    with plain_errors():
        from kvlab import cli_serve

        code = cli_serve.run(
            model,
            host=host,
            port=port,
            api_key=api_key,
            max_queue=max_queue,
            max_body=max_body,
            grace=grace,
            stream_interval=stream_interval,
            early_role=early_role,
            lora_modules=cli_serve.named_folders(lora_modules or [], context.args),
            block_size=block_size,
            num_blocks=num_blocks,
            cpu_blocks=cpu_blocks,
            max_model_len=max_model_len,
            max_num_seqs=max_num_seqs,
            max_num_batched_tokens=max_num_batched_tokens,
            enable_prefix_caching=prefix_caching,
            order=order,
        )
    raise typer.Exit(code or 0)


@app.command()
def bench(
    out: Annotated[Path | None, typer.Option(help="Write the results into this folder.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer repeats, rougher figures.")] = False,
) -> None:
    """Measure this machine: tokens a second beside transformers, import time, memory."""
    from kvlab.cli_signals import sigterm_interrupts

    with plain_errors(), sigterm_interrupts():
        from kvlab.measure import bench as measurement

        code = measurement.main(out=out, quick=quick)
    raise typer.Exit(code or 0)


if __name__ == "__main__":
    app()
