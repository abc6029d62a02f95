"""One chromium for all browser tests, one JupyterLab for those that need it; pages that watch."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

REQUIRED = os.environ.get("KVLAB_REQUIRE_BROWSER") == "1"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.browser)


@pytest.fixture(scope="session")
def browser() -> Iterator[object]:
    """Skips without chromium or Playwright; fails instead where KVLAB_REQUIRE_BROWSER=1."""
    stop = pytest.fail if REQUIRED else pytest.skip
    try:
        import lab_server
    except ImportError as error:
        stop(f"the browser tests need the extra dev: {error}")
    if lab_server.CHROMIUM is None:
        stop("no chromium on this machine; the browser tests drive one")
    from playwright.sync_api import expect

    expect.set_options(timeout=30_000)  # a busy machine is slow, not wrong
    with lab_server.running_browser() as running:
        yield running


@pytest.fixture(scope="session")
def lab(browser: object, tmp_path_factory: pytest.TempPathFactory) -> Iterator[object]:
    import lab_server

    with lab_server.running_lab(tmp_path_factory.mktemp("lab")) as running:
        yield running


@pytest.fixture(scope="module")
def watch(browser: object) -> Iterator[object]:
    """A page for a whole file, watched to its end."""
    import lab_server

    page = browser.new_page(viewport={"width": 1280, "height": 800})
    yield lab_server.Watch(page)
    page.close()


@pytest.fixture
def open_view(browser: object, tmp_path: Path) -> Iterator[Callable[..., object]]:
    """open_view(html, view) shows a page without Jupyter, the view focused, watched to the end.

    html, view: as `plain_page` takes them. focus: what in it takes the keys. Other options are
    those of the browser's context, such as color_scheme.
    """
    import lab_server
    from plain_page import plain_page
    from stillness import wait_until_still

    watches = []

    def open_page(html: str, view: str, focus: str = ".kv[data-stop]", **options: object) -> object:
        path = tmp_path / f"{len(watches)}.html"
        path.write_text(plain_page(html, view), encoding="utf-8")
        context = browser.new_context(**{"viewport": {"width": 1280, "height": 720}, **options})
        watches.append(lab_server.Watch(context.new_page()))
        page = watches[-1].page
        page.goto(path.as_uri())
        page.locator(focus).focus()
        wait_until_still(page)
        return page

    yield open_page
    for watch in watches:
        watch.page.context.close()
        assert watch.wrong == []
