"""Waits until a page stands still: a view with a new size draws itself again in later frames."""

from playwright.sync_api import Page

# A view in a presenter's frame tries a smaller type two frames after the last one did not fit.
STILL = """() => new Promise((done) => {
  const seen = () => innerWidth + JSON.stringify(
    [...document.querySelectorAll(".kv, .kv *")].map((e) => [e.offsetWidth, e.offsetHeight]));
  let last = null, same = 0;
  const look = () => {
    const now = seen();
    same = now === last ? same + 1 : 0;
    last = now;
    if (same < 4) requestAnimationFrame(look);
    else done();
  };
  requestAnimationFrame(look);
})"""


def wait_until_still(page: Page) -> None:
    """Returns when every part of every view has kept its size for four frames in a row."""
    page.evaluate(STILL)


def resize(page: Page, width: int, height: int) -> None:
    """Gives the window a size in pixels; returns when the views have drawn themselves for it."""
    page.set_viewport_size({"width": width, "height": height})
    page.wait_for_function(f"innerWidth === {width} && innerHeight === {height}")
    wait_until_still(page)
