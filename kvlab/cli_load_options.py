"""The options of `kvlab load`, named after `vllm bench serve` where they mean the same."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated

import typer


@dataclass(frozen=True, kw_only=True, repr=False)  # its repr would show the API key
class Options:
    """A field an option, in the order of the help."""

    url: Annotated[
        str | None, typer.Argument(help="The server, for example http://127.0.0.1:8000.")
    ] = None
    endpoint: Annotated[str, typer.Option(help="/v1/completions or /v1/chat/completions.")] = (
        "/v1/completions"
    )
    model: Annotated[str | None, typer.Option(help="Default: the first the server names.")] = None
    api_key: Annotated[
        str | None,
        typer.Option(help="Never shown or saved; better set KVLAB_API_KEY.", show_default=False),
    ] = None
    num_prompts: Annotated[int | None, typer.Option(help="How many; 32, or all of a file.")] = None
    request_rate: Annotated[
        float | None,
        typer.Option(help="Requests a second; inf sends all at once; without it, a closed loop."),
    ] = None
    burstiness: Annotated[float, typer.Option(help="1 is Poisson, below 1 comes in bursts.")] = 1.0
    on: Annotated[float | None, typer.Option(help="Seconds of requests, then off.")] = None
    off: Annotated[float | None, typer.Option(help="Seconds of silence.")] = None
    max_concurrency: Annotated[
        int | None, typer.Option(help="Most under way; 1 in a closed loop.")
    ] = None
    dataset_path: Annotated[
        Path | None, typer.Option(help="Prompts: text, one a line, or JSONL.")
    ] = None
    trace: Annotated[
        Path | None, typer.Option(help="A public trace: arrivals, lengths, shared blocks.")
    ] = None
    trace_scale: Annotated[int, typer.Option(help="Lengths of the trace are divided by it.")] = 1
    stretch: Annotated[float, typer.Option(help="Times are multiplied by it.")] = 1.0
    input_len: Annotated[
        int, typer.Option("--random-input-len", "--input-len", help="Words of a drawn prompt.")
    ] = 128
    output_len: Annotated[
        int, typer.Option("--random-output-len", "--output-len", help="max_tokens.")
    ] = 32
    range_ratio: Annotated[
        float, typer.Option("--random-range-ratio", help="Lengths vary by this share.")
    ] = 0.0
    prefix_len: Annotated[
        int, typer.Option("--random-prefix-len", help="Words of a shared prefix in front.")
    ] = 0
    prefix_share: Annotated[float, typer.Option(help="Share of requests that have one.")] = 1.0
    prefix_groups: Annotated[int, typer.Option(help="Different shared prefixes.")] = 1
    seed: Annotated[int, typer.Option(help="Repeats prompts and arrivals.")] = 0
    num_warmups: Annotated[int, typer.Option(help="Requests before, not counted.")] = 0
    temperature: Annotated[float, typer.Option(help="0 takes the likeliest token.")] = 0.0
    ignore_eos: Annotated[
        bool, typer.Option("--ignore-eos", help="Always max_tokens, where the server can.")
    ] = False
    extra_body: Annotated[str | None, typer.Option(help="JSON object, added to each.")] = None
    header: Annotated[list[str] | None, typer.Option(help="KEY=VALUE, once for each.")] = None
    request_timeout: Annotated[float, typer.Option(help="Seconds until one has failed.")] = 600.0
    goodput: Annotated[
        list[str] | None, typer.Option(help="Targets in ms, as in ttft:3000 tpot:100.")
    ] = None
    percentile_metrics: Annotated[str, typer.Option(help="Rows of the table.")] = (
        "ttft,tpot,itl,e2el,client_queue_time"
    )
    hardware: Annotated[str | None, typer.Option(help="What serves, in your words.")] = None
    out: Annotated[Path | None, typer.Option(help="Write NAME.jsonl and NAME.json.")] = None
    keep_text: Annotated[bool, typer.Option("--keep-text", help="Save answers too.")] = False
    report: Annotated[Path | None, typer.Option(help="Print a saved NAME.jsonl again.")] = None
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False
    quiet: Annotated[bool, typer.Option("--disable-tqdm", "--quiet", help="No bar.")] = False


ASKED = (  # what the requests are, and when they come: arguments of `cli_load.requests_for`
    *("num_prompts", "dataset_path", "trace", "trace_scale", "input_len", "output_len"),
    *("range_ratio", "prefix_len", "prefix_share", "prefix_groups"),
    *("request_rate", "burstiness", "on", "off", "seed"),
)
SENT = {  # how they are sent: arguments of `kvlab.measure.load.load`, and the options' names
    **{name: name for name in ("model", "api_key", "temperature", "ignore_eos", "seed")},
    **{name: name for name in ("stretch", "keep_text", "hardware")},
    "concurrency": "max_concurrency",
    "timeout": "request_timeout",
    "warmups": "num_warmups",
}


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """command(context, **options), with the signature that typer reads the options from."""
    kind = inspect.Parameter.KEYWORD_ONLY
    found = [
        inspect.Parameter(f.name, kind, default=f.default, annotation=f.type)
        for f in fields(Options)
    ]
    context, *_ = inspect.signature(command).parameters.values()
    command.__signature__ = inspect.Signature([context, *found], return_annotation=None)
    command.__annotations__ = {p.name: p.annotation for p in (context, *found)}
    return command


@with_options
def load(context: typer.Context, **given: object) -> None:
    """Measure any server with OpenAI's API: first text, gaps, ends, waits, failures."""
    from kvlab.cli import plain_errors

    with plain_errors():
        code = _run(Options(**given), context.args)
    raise typer.Exit(code)


def _run(options: Options, more: list[str]) -> int:
    """more: words behind the URL, such as further targets. Returns the exit code."""
    from kvlab import cli_load

    if options.endpoint not in cli_load.ENDPOINTS:
        raise ValueError(
            f"--endpoint is {options.endpoint!r:.60}; give one of {', '.join(cli_load.ENDPOINTS)}"
        )
    if options.keep_text and options.out is None:
        raise ValueError("--keep-text saves the answers beside the records; give --out as well")
    return cli_load.run(
        [*([options.url] if options.url is not None else []), *more],
        goodput=options.goodput or [],
        percentile_metrics=options.percentile_metrics,
        report_file=options.report,
        out=options.out,
        as_json=options.as_json,
        quiet=options.quiet,
        asked={name: getattr(options, name) for name in ASKED},
        sent={
            "api": cli_load.ENDPOINTS[options.endpoint],
            "extra_body": cli_load.json_object("--extra-body", options.extra_body),
            "headers": cli_load.pairs_of("--header", options.header or []),
            **{name: getattr(options, option) for name, option in SENT.items()},
        },
    )
