"""The benchmark's figures as tables for a terminal."""

from collections.abc import Mapping, Sequence

from kvlab.measure import competitors as c
from kvlab.measure.editor_speed import REDRAW_GOAL
from kvlab.measure.footprint import IMPORT_GOAL
from kvlab.measure.manager_speed import growth
from kvlab.measure.run_all import BYTES_GOAL, SECONDS_GOAL
from kvlab.measure.scheduler_cost import SHARE_GOAL
from kvlab.measure.throughput import GOALS

MIB = 2**20


def heading(result: Mapping) -> str:
    machine, versions = result["machine"], result["versions"]
    memory = machine["memory_bytes"]
    parts = [
        f"{machine['cpu'] or 'unknown CPU'}, {machine['cores']} cores",
        f"{memory / 2**30:.1f} GiB" if memory else "memory unknown",
        machine["system"],
        *(f"{name} {version or 'not installed'}" for name, version in versions.items()),
    ]
    lines = [" | ".join(parts)]
    if (load := result["load_average"]) is not None and load > 0.5:
        lines.append(f"Others use this machine (load {load:.1f}): compare ratios, not rates.")
    return "\n".join(lines)


def generation(rows: Sequence[Mapping], settings: Mapping) -> str:
    """Tokens a second; beside each competitor kvlab's rate over its rate.

    kvlab / it: median over the rounds; at best: of the two best rounds. The goal is held against
    the median.
    """
    title = (
        f"Tokens a second: one thread, prompt {settings['prompt_tokens']}, "
        f"{settings['new_tokens']} new tokens, greedy; median [smallest .. largest] of "
        f"{settings['rounds']} rounds"
    )
    table = [
        ["model", "batch", "engine", "tokens/s", "", "kvlab / it", "at best", "goal", "same tokens"]
    ]
    for row in rows:
        for name in (c.KVLAB, *GOALS):
            if name in row["engines"]:
                table.append([row["model"], str(row["batch"]), name, *_engine(row, name)])
    absent = {row["absent"] for row in rows if row["engines"].keys() < {c.KVLAB, *GOALS}}
    notes = [f"  the engines of transformers: {reason}" for reason in sorted(absent)]
    return "\n".join([title, aligned(table), *notes])


def _engine(row: Mapping, name: str) -> list[str]:
    rate = row["engines"][name]["tokens_per_second"]
    return [
        f"{rate['median']:,.0f}",
        f"[{rate['min']:,.0f} .. {rate['max']:,.0f}]",
        *beside(row, name),
    ]


def beside(row: Mapping, name: str) -> list[str]:
    """Of a competitor: kvlab's rate over its rate, at best, the goal, and whose tokens differ."""
    if name == c.KVLAB:
        return [""] * 4
    ratio = row["ratios"][name]
    return [
        f"{ratio['median']:.2f}x",
        f"{ratio['of_best']:.2f}x",
        against(ratio["median"] >= ratio["goal"], f"{ratio['goal']}x") if ratio["goal"] else "",
        _agreement(row["agreement"][name]) if name in row["agreement"] else "",
    ]


def _agreement(found: Mapping) -> str:
    count = found["requests"]
    if found["mismatches"]:
        return f"{len(found['mismatches'])} of {count}: {found['mismatches'][0]}"
    if found["near_ties"]:
        return f"all {count} but {len(found['near_ties'])}: {found['near_ties'][0]}"
    return f"all {count}"


def manager(cases: Mapping[str, Mapping]) -> str:
    """Operations a second of the bookkeeping, then admission by prompt length and pool size."""
    table = [["case", "prompt", "pool", "admit/s", "append/s", "free/s", "admitted tokens/s"]]
    for name, case in cases.items():
        rates = case["operations_per_second"]
        table.append(
            [
                name,
                f"{case['prompt_tokens']:,}",
                f"{case['pool_blocks']:,}",
                *(f"{rates[op]['median']:,.0f}" for op in ("admit", "append", "free")),
                f"{case['admitted_tokens_per_second']['median']:,.0f}",
            ]
        )
    title = "Bookkeeping: operations a second, blocks of 16, the pool full of cached blocks"
    notes = [
        f"  {what} {size:,.0f}x as {word}: {time:,.2f}x the time to look up and allocate a prompt"
        for what, word, size, time in growth(cases)
    ]
    return "\n".join([title, aligned(table), *notes])


def scheduler(found: Mapping[str, Mapping]) -> str:
    """Time of schedule and update_from_output in a decode step; its share where a model runs."""
    table = [["case", "running", "ms a step", "", "us a request", "share of the step", "goal"]]
    for name, figures in found.items():
        count, seconds = figures["running"], figures["seconds"]
        each, least, most = (1e3 * seconds[key] for key in ("median", "min", "max"))
        row = [name, f"{count:,}", f"{each:.2f}", f"[{least:.2f} .. {most:.2f}]"]
        row.append(f"{1e3 * each / count:.1f}")
        if "share" in figures:
            share = figures["share"]["median"]
            row += [f"{100 * share:.1f}%", against(share < SHARE_GOAL, f"{100 * SHARE_GOAL:.0f}%")]
        table.append([*row, "", ""][: len(table[0])])
    title = "Scheduler: a decode step's scheduling and recording, contexts of 64 to 112 positions"
    return f"{title}\n{aligned(table)}"


def calculator(found: Mapping[str, Mapping]) -> str:
    """Redraws of the memory calculator for each model."""
    table = [["model", "redraws/s", "ms each", "", "goal"]]
    for name, figures in found.items():
        seconds = figures["seconds"]
        each, least, most = (1e3 * seconds[key] for key in ("median", "min", "max"))
        goal = against(seconds["median"] < REDRAW_GOAL, f"{1e3 * REDRAW_GOAL:.0f} ms")
        span = f"[{least:.3f} .. {most:.3f}]"
        table.append([name, f"{1 / seconds['median']:,.0f}", f"{each:.3f}", span, goal])
    title = "Memory calculator: one redraw in Python, every figure and the picture, as JSON"
    return f"{title}\n{aligned(table)}"


def imports(found: Mapping[str, Mapping]) -> str:
    table = [["program", "ms beyond the bare interpreter", "goal"]]
    for name, figures in found.items():
        added = figures["added"]["median"]
        shown = f"{1e3 * added:.0f}"
        if name == "bare interpreter":
            shown = f"({1e3 * figures['seconds']['median']:.0f} itself)"
        goal = against(added < IMPORT_GOAL, f"{1e3 * IMPORT_GOAL:.0f} ms")
        table.append([name, shown, goal if name == "import kvlab" else ""])
    return f"Import time: fresh interpreters\n{aligned(table)}"


def memory(found: Mapping[str, object]) -> str:
    table = [["process", "peak MiB"]]
    for name, peak in found.items():
        table.append([name, peak if isinstance(peak, str) else f"{peak['median'] / MIB:.0f}"])
    title = "Peak memory: tiny model, 16 requests, each engine in its own process"
    return f"{title}\n{aligned(table)}"


def notebooks(found: Mapping[str, object]) -> str:
    """Run All of each notebook: seconds with its kernel's start, and the size of its file."""
    table = [["notebook", "seconds", "goal", "kB", "goal"]]
    for name, figures in found.items():
        if isinstance(figures, str):
            table.append([name, figures, "", "", ""])
            continue
        seconds, size = figures["seconds"], figures["bytes"]
        fast = against(seconds < SECONDS_GOAL, f"{SECONDS_GOAL} s")
        small = against(size < BYTES_GOAL, f"{BYTES_GOAL // 1000} kB")
        table.append([name, f"{seconds:.1f}", fast, f"{size / 1000:.0f}", small])
    return f"Run All: each notebook once in a new kernel\n{aligned(table)}"


def against(met: bool, goal: str) -> str:
    return f"{goal} {'met' if met else 'MISSED'}"


def aligned(table: Sequence[Sequence[str]]) -> str:
    """Columns as wide as their widest cell; numbers to the right, words to the left."""
    widths = [max(len(row[i]) for row in table) for i in range(len(table[0]))]
    lines = []
    for row in table:
        cells = [
            cell.rjust(w) if cell[:1].isdigit() else cell.ljust(w)
            for cell, w in zip(row, widths, strict=True)
        ]
        lines.append("  " + "  ".join(cells).rstrip())
    return "\n".join(lines)
