"""Build the book: the whole chapter as a static site in site/, that works from files alone.

mdBook does the work, told by book.toml; this command sees to it that nothing goes wrong unseen.
mdBook skips a preprocessor that does not answer and exits with 0 after lines that say ERROR. So the
site is made in a new folder, such a line fails the build, and the new site is checked (checks.py)
before it takes the old one's place (own_files.py): nothing else is ever replaced or deleted.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote, urlsplit

from kvlab.book.checks import Page, problems, text_of
from kvlab.book.manifest import Manifest, read
from kvlab.book.own_files import replacing
from kvlab.book.prose import FILES
from kvlab.book.tables import with_breaks
from kvlab.widgets.modules import FOLDER, PARTS

TROUBLE = re.compile(r"^.*\b(?:ERROR|WARN)\b.*$", re.MULTILINE)
HOST = "host*.js"  # mdBook puts a hash into the name
UNPUBLISHED = (
    "source",
    "conftest.py",
)  # of the notebooks' folder; mdBook copies all that lies there


def build(root: Path, out: Path | None = None) -> Path:
    """Build `root`'s book into `out` (default: the folder that book.toml names); returns it.

    Raises ValueError that tells what is wrong with the book, one line each; and for a folder that
    holds anything but an old site. Whatever is raised, `out` is left as it is.
    """
    manifest = read(root)
    out = out or root / manifest.site
    source = _source(root, manifest)
    _refuse_nested(out, source)
    sections = [section.notebook for section in manifest.written]
    try:
        with replacing(out) as site:
            _make(root, site)
            if found := problems(site, sections):
                title = f"the book has mistakes, and {out} is as it was:"
                raise ValueError("\n".join([title, *found]))
    except OSError as error:  # as of a full disk; what the system says may name no file
        if error.filename is None:
            raise type(error)(error.errno, error.strerror, str(out)) from error
        raise
    return out


def _source(root: Path, manifest: Manifest) -> Path:
    source = root / manifest.source
    if not (source / "SUMMARY.md").is_file():
        raise ValueError(
            f"{root / 'book.toml'}: [book] src names {manifest.source!r}, which has no SUMMARY.md"
        )
    return source


def _refuse_nested(out: Path, source: Path) -> None:
    """mdBook copies all that lies in `source` into the site: neither may lie in the other."""
    site, pages = out.resolve(), source.resolve()
    if site.is_relative_to(pages) or pages.is_relative_to(site):
        raise ValueError(
            f"{out} and the book's pages, {source}, lie in one another: name another folder"
        )


def _make(root: Path, site: Path) -> None:
    said = _mdbook(root, site)
    if wrong := TROUBLE.findall(said):
        raise ValueError("\n".join(["mdBook complains:", *wrong]))
    _leave_out(site)
    _break_names(site)
    _write_views(site)
    _copy_linked(root, site)


def _leave_out(out: Path) -> None:
    """What mdBook has copied into the new site, and nobody reads there."""
    for name in UNPUBLISHED:
        place = out / name
        if place.is_dir():
            shutil.rmtree(place)
        else:
            place.unlink(missing_ok=True)


def _break_names(out: Path) -> None:
    for path in out.glob("*.html"):
        path.write_text(with_breaks(text_of(path)), encoding="utf-8")


def _mdbook(root: Path, out: Path) -> str:
    """mdBook's log. This interpreter stands first on PATH: it runs the preprocessor."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    program = shutil.which("mdbook", path=path)
    if program is None:
        raise ValueError("mdBook is missing: pip install 'kvlab[book]'")
    folders = os.pathsep.join(p for p in (str(root), os.environ.get("PYTHONPATH")) if p)
    done = subprocess.run(
        [program, "build", str(root), "--dest-dir", str(out.resolve())],
        env={**os.environ, "PATH": path, "PYTHONPATH": folders, "NO_COLOR": "1"},
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    said = done.stdout + done.stderr
    if done.returncode:
        raise ValueError(f"mdBook failed with exit code {done.returncode}:\n{said.strip()}")
    return said


def _copy_linked(root: Path, out: Path) -> None:
    """Files of the clone that pages link to; one that is not there stays a dead link."""
    links = {link for path in out.glob("*.html") for link in Page(path).links}
    for link in sorted(links):
        if not link.startswith(FILES):
            continue
        name = unquote(urlsplit(link).path).removeprefix(FILES)
        inside = not Path(name).is_absolute() and ".." not in Path(name).parts
        if inside and (root / name).is_file():
            (out / FILES / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(root / name, out / FILES / name)


def _write_views(out: Path) -> None:
    """The views' modules as one script beside host.js: a page from a file loads no other form."""
    found = list(out.rglob(HOST))
    if len(found) != 1:
        names = [path.relative_to(out).as_posix() for path in found]
        raise ValueError(f"book.toml must list host.js once in additional-js; the site has {names}")
    files = {name for names in PARTS.values() for name in names}
    parts = {name: (FOLDER / name).read_text(encoding="utf-8") for name in sorted(files)}
    text = json.dumps({"parts": parts, "views": PARTS}, ensure_ascii=False)
    found[0].with_name("views.js").write_text(f"window.KVLAB_VIEWS = {text};\n", encoding="utf-8")
