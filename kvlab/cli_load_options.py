"""The options of `kvlab load`, named after `vllm bench serve` where they mean the same."""

from pathlib import Path
from typing import Annotated

import typer


def load(
    context: typer.Context,
    url: Annotated[
        str | None, typer.Argument(help="The server, for example http://127.0.0.1:8000.")
    ] = None,
    endpoint: Annotated[
        str, typer.Option(help="/v1/completions or /v1/chat/completions.")
    ] = "/v1/completions",
    model: Annotated[str | None, typer.Option(help="Default: the first the server names.")] = None,
    api_key: Annotated[
        str | None,
        typer.Option(help="Never shown or saved; better set KVLAB_API_KEY.", show_default=False),
    ] = None,
    num_prompts: Annotated[int | None, typer.Option(help="How many; 32, or all of a file.")] = None,
    request_rate: Annotated[
        float | None,
        typer.Option(help="Requests a second; inf sends all at once; without it, a closed loop."),
    ] = None,
    burstiness: Annotated[float, typer.Option(help="1 is Poisson, below 1 comes in bursts.")] = 1.0,
    on: Annotated[float | None, typer.Option(help="Seconds of requests, then off.")] = None,
    off: Annotated[float | None, typer.Option(help="Seconds of silence.")] = None,
    max_concurrency: Annotated[
        int | None, typer.Option(help="Most under way; 1 in a closed loop.")
    ] = None,
    dataset_path: Annotated[
        Path | None, typer.Option(help="Prompts: text, one a line, or JSONL.")
    ] = None,
    trace: Annotated[
        Path | None, typer.Option(help="A public trace: arrivals, lengths, shared blocks.")
    ] = None,
    trace_scale: Annotated[int, typer.Option(help="Lengths of the trace are divided by it.")] = 1,
    stretch: Annotated[float, typer.Option(help="Times are multiplied by it.")] = 1.0,
    input_len: Annotated[
        int, typer.Option("--random-input-len", "--input-len", help="Words of a drawn prompt.")
    ] = 128,
    output_len: Annotated[
        int, typer.Option("--random-output-len", "--output-len", help="max_tokens.")
    ] = 32,
    range_ratio: Annotated[
        float, typer.Option("--random-range-ratio", help="Lengths vary by this share.")
    ] = 0.0,
    prefix_len: Annotated[
        int, typer.Option("--random-prefix-len", help="Words of a shared prefix in front.")
    ] = 0,
    prefix_share: Annotated[float, typer.Option(help="Share of requests that have one.")] = 1.0,
    prefix_groups: Annotated[int, typer.Option(help="Different shared prefixes.")] = 1,
    seed: Annotated[int, typer.Option(help="Repeats prompts and arrivals.")] = 0,
    num_warmups: Annotated[int, typer.Option(help="Requests before, not counted.")] = 0,
    temperature: Annotated[float, typer.Option(help="0 takes the likeliest token.")] = 0.0,
    ignore_eos: Annotated[
        bool, typer.Option("--ignore-eos", help="Always max_tokens, where the server can.")
    ] = False,
    extra_body: Annotated[str | None, typer.Option(help="JSON object, added to each.")] = None,
    header: Annotated[list[str] | None, typer.Option(help="KEY=VALUE, once for each.")] = None,
    request_timeout: Annotated[float, typer.Option(help="Seconds until one has failed.")] = 600.0,
    goodput: Annotated[
        list[str] | None, typer.Option(help="Targets in ms, as in ttft:3000 tpot:100.")
    ] = None,
    percentile_metrics: Annotated[
        str, typer.Option(help="Rows of the table.")
    ] = "ttft,tpot,itl,e2el,client_queue_time",
    hardware: Annotated[str | None, typer.Option(help="What serves, in your words.")] = None,
    out: Annotated[Path | None, typer.Option(help="Write NAME.jsonl and NAME.json.")] = None,
    keep_text: Annotated[bool, typer.Option("--keep-text", help="Save answers too.")] = False,
    report: Annotated[Path | None, typer.Option(help="Print a saved NAME.jsonl again.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    quiet: Annotated[bool, typer.Option("--disable-tqdm", "--quiet", help="No bar.")] = False,
) -> None:
    """Measure any server with OpenAI's API: first text, gaps, ends, waits, failures."""
    from kvlab.cli import plain_errors

    with plain_errors():
        from kvlab import cli_load

        if endpoint not in cli_load.ENDPOINTS:
            raise ValueError(
                f"--endpoint is {endpoint!r:.60}; give one of {', '.join(cli_load.ENDPOINTS)}"
            )
        if keep_text and out is None:
            raise ValueError("--keep-text saves the answers beside the records; give --out as well")
        code = cli_load.run(
            [*([url] if url is not None else []), *context.args],
            goodput=goodput or [],
            percentile_metrics=percentile_metrics,
            report_file=report,
            out=out,
            as_json=as_json,
            quiet=quiet,
            asked={
                "num_prompts": num_prompts,
                "dataset_path": dataset_path,
                "trace": trace,
                "trace_scale": trace_scale,
                "input_len": input_len,
                "output_len": output_len,
                "range_ratio": range_ratio,
                "prefix_len": prefix_len,
                "prefix_share": prefix_share,
                "prefix_groups": prefix_groups,
                "request_rate": request_rate,
                "burstiness": burstiness,
                "on": on,
                "off": off,
                "seed": seed,
            },
            sent={
                "concurrency": max_concurrency,
                "api": cli_load.ENDPOINTS[endpoint],
                "model": model,
                "api_key": api_key,
                "temperature": temperature,
                "ignore_eos": ignore_eos,
                "extra_body": cli_load.json_object("--extra-body", extra_body),
                "headers": cli_load.pairs_of("--header", header or []),
                "timeout": request_timeout,
                "warmups": num_warmups,
                "seed": seed,
                "stretch": stretch,
                "keep_text": keep_text,
                "hardware": hardware,
            },
        )
    raise typer.Exit(code)
