"""A file is written whole, or what was there before stays: full disks, links, permissions."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from kvlab.core.whole_file import write_whole

LIMITED = """
import resource, sys
from pathlib import Path
from kvlab.core.whole_file import write_whole
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
try:
    write_whole(Path(sys.argv[1]), "x" * 5000)
except OSError as error:
    print(type(error).__name__, error)
"""


def limited(place: Path) -> str:
    """What is said where no file can have more than 1,000 bytes, and 5,000 are to be written."""
    program = [sys.executable, "-c", LIMITED, str(place)]
    done = subprocess.run(program, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_bytes_and_text_as_they_are(tmp_path: Path) -> None:
    write_whole(tmp_path / "bytes", b"\x00\xff\r\n")
    write_whole(tmp_path / "text", "één\n")
    assert (tmp_path / "bytes").read_bytes() == b"\x00\xff\r\n"
    assert (tmp_path / "text").read_bytes() == "één\n".encode()


def test_where_no_room_is_left_the_old_file_stays_and_nothing_beside_it(tmp_path: Path) -> None:
    place = tmp_path / "page.ipynb"
    place.write_text("before", encoding="utf-8")
    said = limited(place)
    assert said.startswith("OSError [Errno 27] File too large: ")
    assert said.endswith(f"'{place}'")
    assert place.read_text(encoding="utf-8") == "before"
    assert [each.name for each in tmp_path.iterdir()] == ["page.ipynb"]


def test_a_new_file_that_cannot_be_whole_is_not_there(tmp_path: Path) -> None:
    assert "File too large" in limited(tmp_path / "new")
    assert list(tmp_path.iterdir()) == []


def test_who_reads_meanwhile_finds_one_or_the_other(tmp_path: Path) -> None:
    place, texts = tmp_path / "score.json", ["a" * 200_000, "b" * 300_000]
    write_whole(place, texts[0])
    done, seen = threading.Event(), set()

    def read() -> None:
        while not done.is_set():
            seen.add(place.read_text(encoding="utf-8"))

    reader = threading.Thread(target=read)
    reader.start()
    for n in range(60):
        write_whole(place, texts[n % 2])
    done.set()
    reader.join()
    assert seen and seen <= set(texts)


def test_a_link_stays_and_its_target_is_written(tmp_path: Path) -> None:
    target, link, there = tmp_path / "target", tmp_path / "link", tmp_path / "there"
    there.mkdir()
    target.write_text("before", encoding="utf-8")
    link.symlink_to("target")
    write_whole(link, "after")
    assert link.is_symlink() and target.read_text(encoding="utf-8") == "after"
    ahead = tmp_path / "ahead"  # a link to what is not there yet
    ahead.symlink_to(there / "made")
    write_whole(ahead, "made")
    assert ahead.is_symlink() and (there / "made").read_text(encoding="utf-8") == "made"


def test_permissions_stay_and_a_new_file_has_what_the_umask_allows(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    old.write_text("before", encoding="utf-8")
    old.chmod(0o604)
    before = os.umask(0o027)
    try:
        write_whole(old, "after")
        write_whole(new, "new")
        now = os.umask(0o027)
    finally:
        os.umask(before)
    assert [place.stat().st_mode & 0o777 for place in (old, new)] == [0o604, 0o640]
    assert now == 0o027  # the process's own is as it was


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="Windows has no named pipes")
@pytest.mark.parametrize("kind", ["folder", "fifo", "device"])
def test_what_is_no_plain_file_is_refused_and_kept(tmp_path: Path, kind: str) -> None:
    place = Path("/dev/null") if kind == "device" else tmp_path / kind
    if kind == "folder":
        place.mkdir()
    elif kind == "fifo":
        os.mkfifo(place)
    before = os.stat(place)
    with pytest.raises(FileExistsError, match="no plain file") as caught:
        write_whole(place, "x")
    assert caught.value.filename == str(place)
    after = os.stat(place)
    assert (after.st_mode, after.st_ino) == (before.st_mode, before.st_ino)


def test_a_folder_that_is_not_there_is_named_by_the_file_that_was_wanted(tmp_path: Path) -> None:
    place = tmp_path / "nowhere" / "page.ipynb"
    with pytest.raises(FileNotFoundError) as caught:
        write_whole(place, "x")
    assert caught.value.filename == str(place)
    assert list(tmp_path.iterdir()) == []


def test_links_that_lead_to_one_another_are_refused(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    one.symlink_to("other")
    other.symlink_to("one")
    with pytest.raises(OSError, match=f"Too many levels of symbolic links: '{one}'"):
        write_whole(one, "text")
    assert one.is_symlink() and other.is_symlink() and len(list(tmp_path.iterdir())) == 2
