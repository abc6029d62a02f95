"""A page without Jupyter that mounts a view's module on its HTML form, as the static book does."""

from kvlab.widgets import module_source

MOUNT = """
<script type="module">
const module = await import(URL.createObjectURL(new Blob(
  [document.getElementById("module").textContent], { type: "text/javascript" })));
window.views = [...document.querySelectorAll(".kvlab-view")].map((element) =>
  module.mount(element, JSON.parse(element.querySelector("script").textContent)));
window.kvlab = module;
</script>
"""


def plain_page(html: str, view: str, exports: str = "") -> str:
    """html: the HTML forms to mount, if any. exports: lines added to the module.

    `window.views` are what it mounted, `window.kvlab` is the module, once everything is there.
    """
    source = (module_source(view) + exports).replace("</script", "<\\/script")
    module = f'<script type="text/plain" id="module">{source}</script>'
    return f'<!doctype html><meta charset="utf-8">{html}<p>end</p>{module}{MOUNT}'
