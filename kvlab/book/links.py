"""Write what depends on the manifest into README.md and CITATION.cff: badges, links and the map.

    python -m kvlab.book.links           rewrite both files
    python -m kvlab.book.links --check   change nothing; exit 1 if a file is out of date

In README.md only the lines between `<!-- NAME:start -->` and `<!-- NAME:end -->` are touched.
While the manifest's `repository` is empty there are no badges and no repository-code.
"""

import argparse
import re
import sys
from pathlib import Path
from urllib.parse import quote

from kvlab.book.manifest import Manifest, Section, clone_root, read
from kvlab.core.whole_file import write_whole

BRANCH = "main"
GITHUB = "https://github.com/"
COLAB_BADGE = "https://colab.research.google.com/assets/colab-badge.svg"
BINDER_BADGE = "https://mybinder.org/badge_logo.svg"


def colab_url(repository: str, notebook: str) -> str:
    """The address that opens `notebook` (a path from the root) in Colab; GitHub only."""
    return (
        "https://colab.research.google.com/github/"
        f"{repository.removeprefix(GITHUB)}/blob/{BRANCH}/{notebook}"
    )


def binder_url(repository: str, notebook: str) -> str:
    """The address that opens `notebook` (a path from the root) in Binder; GitHub only."""
    place = quote(f"lab/tree/{notebook}", safe="")
    return f"https://mybinder.org/v2/gh/{repository.removeprefix(GITHUB)}/{BRANCH}?urlpath={place}"


def badges(manifest: Manifest) -> str:
    """The README's line of links, or nothing while the address is unknown."""
    repository = manifest.repository
    if not repository:
        return ""
    line = [f"[Repository]({repository})"]
    if repository.startswith(GITHUB) and manifest.written:
        start = manifest.written[0].path
        line += [
            f"[![Open in Colab]({COLAB_BADGE})]({colab_url(repository, start)})",
            f"[![Open in Binder]({BINDER_BADGE})]({binder_url(repository, start)})",
        ]
    return " ".join(line)


def section_map(manifest: Manifest) -> str:
    """The README's table of sections; with a Colab badge each where the address is on GitHub."""
    columns = ["section", "title", "minutes", "hardware", "state"]
    columns += ["run it there"] if manifest.repository.startswith(GITHUB) else []
    rows = [columns, ["---"] * len(columns)]
    rows += [_cells(section, manifest.repository) for section in manifest.sections]
    return "\n".join("|" + "|".join(map(_padded, row)) + "|" for row in rows)


def _padded(cell: str) -> str:
    return cell if cell == "---" else f" {cell} "


def _cells(section: Section, repository: str) -> list[str]:
    title = f"[{section.title}]({section.path})" if section.written else section.title
    state = "written" if section.written else "planned"
    cells = [section.id, title, str(section.minutes), section.hardware, state]
    if not repository.startswith(GITHUB):
        return cells
    badge = f"![Open {section.id} in Colab]({COLAB_BADGE})"
    door = f"[{badge}]({colab_url(repository, section.path)})" if section.written else ""
    return [*cells, door]


def replace_region(text: str, name: str, body: str) -> str:
    """`text` with the lines between the marks `name`:start and `name`:end replaced by `body`."""
    start, end = f"<!-- {name}:start -->", f"<!-- {name}:end -->"
    if text.count(start) != 1 or text.count(end) != 1 or text.index(start) > text.index(end):
        raise ValueError(f"README.md needs the marks {start} and {end}, once each, in this order")
    before, rest = text.split(start)
    after = rest.split(end)[1]
    inside = f"\n{body}\n" if body else "\n"
    return f"{before}{start}{inside}{end}{after}"


def cite(text: str, repository: str) -> str:
    """CITATION.cff with its repository-code line after `license`, or without one."""
    text = re.sub(r"^repository-code:.*\n", "", text, flags=re.MULTILINE)
    if not repository:
        return text
    line = f'repository-code: "{repository}"\n'
    text, found = re.subn(r"^license:.*\n", lambda m: m[0] + line, text, flags=re.MULTILINE)
    if found != 1:
        raise ValueError("CITATION.cff needs one `license:` line")
    return text


def pages(root: Path) -> dict[Path, str]:
    """Each file that depends on the manifest, with the text that it should have."""
    manifest = read(root)
    readme, citation = root / "README.md", root / "CITATION.cff"
    text = replace_region(readme.read_text(encoding="utf-8"), "links", badges(manifest))
    text = replace_region(text, "map", section_map(manifest))
    return {readme: text, citation: cite(citation.read_text(encoding="utf-8"), manifest.repository)}


def stale(root: Path) -> list[str]:
    """The names of the files that do not say what the manifest says."""
    return [p.name for p, text in pages(root).items() if p.read_text(encoding="utf-8") != text]


def write(root: Path) -> list[str]:
    """Rewrite the files that are out of date and name them."""
    names = stale(root)
    for path, text in pages(root).items():
        if path.name in names:
            write_whole(path, text)
    return names


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m kvlab.book.links",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--check", action="store_true", help="change nothing")
    check = parser.parse_args(arguments).check
    try:
        root = clone_root()
        names = stale(root) if check else write(root)
    except (ValueError, OSError) as error:
        print(f"kvlab: {error}", file=sys.stderr)
        return 2
    for name in names:
        print(f"{name}: out of date" if check else f"{name}: rewritten")
    return 1 if check and names else 0


if __name__ == "__main__":
    sys.exit(main())
