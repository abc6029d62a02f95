"""The report of `gpu_run` as tables to read, each beside its goal."""

from collections.abc import Callable, Mapping

from kvlab.measure import gpu_decode, gpu_engine, gpu_prefill
from kvlab.measure.report import aligned

Row = Mapping[str, object]


def section(name: str, report: Row) -> str:
    """One part of the report: its table, or why there is none."""
    part = report[name]
    head = f"\n{name} ({part['seconds_taken']:.0f} s)"
    for why in ("error", "skipped"):
        if why in part:
            return f"{head}\n  {why}: {part[why]}"
    return f"{head}\n{TABLES[name](part)}"


def _ceilings(part: Row) -> str:
    copy, matmul = part["copy"], part["matmul"]
    lines = [f"  copy    {_cell(copy, 'bytes_per_second', 1e12, '{:.2f} TB/s, read and written')}"]
    lines += [f"  matmul  {_cell(matmul, 'flops_per_second', 1e12, '{:.0f} TFLOP/s')}"]
    return "\n".join(lines)


def _correctness(part: Row) -> str:
    lines = []
    for row in part["rows"]:
        told = "ok" if row.get("holds") else "WRONG"
        found = row.get("error") or "{}".format(
            f"error {row['error_found']:.1e}, at most {row['bound']:.0e}"
            if "bound" in row
            else f"{row['bytes_that_differ']} bytes differ"
        )
        lines.append(f"  {told:<6}{row['case']}: {found}")
    return "\n".join([*lines, f"  {part['wrong']} of {len(part['rows'])} wrong"])


def _decode(part: Row) -> str:
    head = ["B", "T", "K/V", "kernel", "of copy", "SDPA", "kernel/SDPA", "flex", "gather"]
    rows = [head]
    for row in part["rows"]:
        cells = [str(row["batch"]), str(row["context"])]
        if "error" in row:
            rows.append([*cells, row["error"], *[""] * (len(head) - 3)])
            continue
        sdpa = row["sdpa"]
        ratio = f"{row['seconds'] / sdpa['seconds']:.2f}" if "seconds" in sdpa else "-"
        cells += [f"{row['kv_bytes'] / 1e6:.0f} MB", _us(row), _share(row)]
        rows.append([*cells, _us(sdpa), ratio, _us(row.get("flex", {})), _us(row["gather"])])
    lines = [aligned(rows)]
    lines += [f"  {_stored(row)}" for row in part["formats"]]
    lines += _failures(part["rows"], ("sdpa", "flex", "gather"))
    goals = f"kernel at least {gpu_decode.SHARE_GOAL:.0%} of copy, kernel/SDPA at most 1"
    return "\n".join([*lines, f"  goals, where K/V exceed the cache: {goals}"])


def _stored(row: Row) -> str:
    if "error" in row:
        return f"K/V as {row['stored']}: {row['error']}"
    shape = f"B {row['batch']}, T {row['context']}"
    return f"K/V as {row['stored']}, {shape}: {_us(row)}, {_share(row)} of copy"


def _prefill(part: Row) -> str:
    rows = [["B", "new", "before", "kernel", "of matmul", "SDPA", "kernel's speed / SDPA's"]]
    for row in part["rows"]:
        cells = [str(row[name]) for name in ("batch", "new", "before")]
        if "error" in row:
            rows.append([*cells, row["error"], "", "", ""])
            continue
        sdpa = row["sdpa"]
        speed = f"{sdpa['seconds'] / row['seconds']:.2f}" if "seconds" in sdpa else "-"
        rows.append([*cells, _us(row), _share(row), _us(sdpa), speed])
    lines = [aligned(rows), *_failures(part["rows"], ("sdpa",))]
    return "\n".join([*lines, f"  goal: at least {gpu_prefill.GOAL} of SDPA's speed"])


def _engine(part: Row) -> str:
    rows, without = [["B", "engine", "tokens/s", "ms a token", "tokens as kvlab's"]], []
    for row in part["rows"]:
        why = row.get("error") or row.get("skipped")
        cells = [str(row["batch"]), row["way"]]
        if why:
            rows.append([*cells, "-", "-", "-"])
            without.append(f"  {cells[1]}, B {cells[0]}: {why}")
            continue
        each = 1e3 * row["batch"] / row["tokens_per_second"]
        same = f"{row['same_tokens']} of {row['tokens']}"
        rows.append([*cells, f"{row['tokens_per_second']:,.0f}", f"{each:.2f}", same])
    about = part["runner"]
    graphs = about["why_no_graphs"] or f"captured for {about['graphs']}"
    engine = f"  kvlab: {about['backend']} ({about['reason']}); CUDA graphs: {graphs}"
    lines = [aligned(rows), *without, engine]
    lines += [f"  B {batch}: {told}" for batch, told in over_batching(part["rows"]).items()]
    return "\n".join(lines)


def over_batching(rows: list[Row]) -> dict[int, str]:
    """For each batch: kvlab's tokens a second over those of the better generate_batch."""
    told = {}
    for batch in dict.fromkeys(row["batch"] for row in rows):
        rates = {r["way"]: r.get("tokens_per_second") for r in rows if r["batch"] == batch}
        theirs = [rates.get(way) for way in (gpu_engine.BATCHING, gpu_engine.GRAPHS)]
        theirs, ours = [rate for rate in theirs if rate], rates.get(gpu_engine.KVLAB)
        if ours and theirs:
            ratio = ours / max(theirs)
            told[batch] = f"{ratio:.2f} times generate_batch (goal: {gpu_engine.GOAL:g})"
    return told


def _tune(part: Row) -> str:
    lines = []
    for row in part["rows"]:
        if "error" in row:
            lines.append(f"  {row['work']}: {row['error']}")
            continue
        best = "the table's is best or as good"
        if row["better"]:
            factor = row["table_seconds"] / row["best_seconds"]
            best = (
                f"{row['best']} would take {1e6 * row['best_seconds']:.1f} us, {factor:.2f} times"
            )
        table = f"{row['table']} takes {1e6 * (row['table_seconds'] or 0):.1f} us"
        lines.append(f"  {row['work']}, {row['choice']}: {table}; {best}")
    return "\n".join(lines)


def _failures(rows: list[Row], ways: tuple[str, ...]) -> list[str]:
    """Each reason once."""
    told = {}
    for row in rows:
        for way in ways:
            found = row.get(way, {})
            if "error" in found:
                told[f"  {way}: {found['error']}"] = None
            for name, why in found.get("failed", {}).items():
                told[f"  {way} by {name}: {why[:120]}"] = None
    return list(told)


def _us(row: Row) -> str:
    return _cell(row, "seconds", 1e-6, "{:,.1f} us") if "seconds" in row else "-"


def _share(row: Row) -> str:
    return "-" if row.get("share") is None else f"{row['share']:.0%}"


def _cell(row: Row, name: str, unit: float, form: str) -> str:
    return form.format(row[name] / unit) if name in row else row.get("error", "-")


TABLES: dict[str, Callable[[Row], str]] = {
    "ceilings": _ceilings,
    "correctness": _correctness,
    "decode": _decode,
    "prefill": _prefill,
    "engine": _engine,
    "tune": _tune,
}
