"""A reader stops anywhere, restarts the kernel and begins again: every page must go through that.

Which cells is drawn anew in each run of the tests; a failure prints the seed, and
KVLAB_RESTART_SEED=... gives the same cells again. `make test` draws a few pages and their first
parts, `make soak` takes all of them, up to the last cell, several times.
"""

import os
import random
import socket
import time
from pathlib import Path

import nbformat
import pytest

pytest.importorskip("jupyter_client", reason="the notebooks are run with the extra dev")
pytest.importorskip("ipykernel", reason="the notebooks are run with the extra dev")

from restarting import kernel, page

PAGES = Path(__file__).parents[2] / "notebooks"
NAMES = sorted(path.stem for path in PAGES.glob("*.ipynb"))
SEED = os.environ.get("KVLAB_RESTART_SEED") or os.urandom(4).hex()
PAGES_IN_MAKE_TEST, SHARE_IN_MAKE_TEST, ROUNDS_IN_SOAK = 2, 0.6, 3


def first_part(name: str) -> int:
    """How many cells `make test` may run of a page: a share of them, and no slow one."""
    cells = page(PAGES / f"{name}.ipynb")
    slow = [place for place, cell in enumerate(cells) if "slow" in cell.tags]
    return min([int(SHARE_IN_MAKE_TEST * len(cells)), *slow])


def restart_and_begin_again(name: str, first: int, second: int) -> list[str]:
    """Run `first` cells, restart, run `second` and the last of these again. What went wrong."""
    cells = page(PAGES / f"{name}.ipynb")
    with kernel(PAGES) as running:
        running.run_from_the_top(cells, first)
        left = running.restart()
        running.problems += [f"the first kernel left {process}" for process in left]
        running.run_from_the_top(cells, second, twice=True)
        return running.problems


def told(name: str, first: int, second: int) -> str:
    return (
        f"{name}: restarted after {first} code cells, then {second} run, the last of them twice; "
        f"KVLAB_RESTART_SEED={SEED} does it again"
    )


def test_a_few_pages_are_restarted_at_random_cells() -> None:
    draw = random.Random(SEED)
    for name in draw.sample(NAMES, PAGES_IN_MAKE_TEST):
        first, second = (draw.randint(1, first_part(name)) for _ in range(2))
        assert restart_and_begin_again(name, first, second) == [], told(name, first, second)


@pytest.mark.soak
@pytest.mark.parametrize("turn", range(ROUNDS_IN_SOAK))
@pytest.mark.parametrize("name", NAMES)
def test_every_page_is_restarted_at_random_cells(name: str, turn: int) -> None:
    draw = random.Random(f"{SEED} {name} {turn}")
    last = len(page(PAGES / f"{name}.ipynb"))
    first, second = draw.randint(1, last), last if turn == 0 else draw.randint(1, last)
    assert restart_and_begin_again(name, first, second) == [], told(name, first, second)


# ---- what stays behind when a kernel is restarted in the middle


SERVE = """
from kvlab import LLM
from kvlab.serve import Server
server = Server(LLM("tiny", num_blocks=16), port={port})
server.__enter__()
print(server.port)
"""
HELPER = """
import subprocess, sys
helper = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
"""


def test_what_a_page_has_left_open_goes_with_its_kernel() -> None:
    """A server that serves, and a process of its own; the port is free for the next server."""
    with kernel(PAGES) as running:
        printed, error = running.run(SERVE.format(port=0))
        port = int(printed["stdout"])
        assert error == "" and listens(port)
        assert running.run(HELPER) == ({}, "")
        assert running.restart() == []
        assert not listens(port)
        printed, error = running.run(SERVE.format(port=port))
        assert (printed.get("stdout"), error) == (f"{port}\n", "")


def listens(port: int) -> bool:
    with socket.socket() as asking:
        return asking.connect_ex(("127.0.0.1", port)) == 0


# cells that start a server, or processes: the first that holds these words
STARTING = {
    "21_1_reuse": "subprocess.run([sys.executable",
    "21_2_latency": "with Server(",
    "21_5b_kernel": "subprocess.run(command",
}


@pytest.mark.soak
@pytest.mark.parametrize("delay", [0.1, 0.5, 2.0])  # seconds into the cell
@pytest.mark.parametrize("name", STARTING)
def test_a_restart_in_the_middle_of_a_cell_leaves_nothing_running(name: str, delay: float) -> None:
    cells = page(PAGES / f"{name}.ipynb")
    place = next(i for i, cell in enumerate(cells) if STARTING[name] in cell.source)
    with kernel(PAGES) as running:
        running.run_from_the_top(cells, place)
        running.client.execute(cells[place].source)
        time.sleep(delay)
        assert running.restart() == []
        running.run_from_the_top(cells, place + 1, twice=True)
        assert running.problems == []


# ---- the test itself can fail


def write(path: Path, *cells: tuple[str, str]) -> list:
    made = [
        nbformat.v4.new_code_cell(
            source, execution_count=1, outputs=[nbformat.v4.new_output("stream", text=printed)]
        )
        for source, printed in cells
    ]
    nbformat.write(nbformat.v4.new_notebook(cells=made), path)
    return page(path)


def test_a_page_that_leaves_something_behind_is_found(tmp_path: Path) -> None:
    cells = write(
        tmp_path / "leaving.ipynb",
        ("from pathlib import Path\nprint(Path('left').exists())", "False\n"),
        ("_ = Path('left').write_text('')\nseen = []\nprint('written')", "written\n"),
        ("seen.append(1)\nprint(len(seen))", "1\n"),
    )
    with kernel(tmp_path) as running:
        running.run_from_the_top(cells, 2)
        assert running.problems == []
        assert running.restart() == []
        running.run_from_the_top(cells, 3, twice=True)
    assert running.problems == [
        "cell 0: stdout was 'False\\n', is 'True\\n'",
        "cell 2 when it was run again: stdout was '1\\n', is '2\\n'",
    ]


def test_a_kernel_that_was_restarted_knows_nothing_and_an_error_is_told(tmp_path: Path) -> None:
    with kernel(tmp_path) as running:
        assert running.run("known = 7") == ({}, "")
        assert running.run("known") == ({"text/plain": "7"}, "")
        running.restart()
        assert running.run("known") == ({}, "NameError: name 'known' is not defined")
