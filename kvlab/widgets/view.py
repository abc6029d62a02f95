"""What every widget of kvlab has in common: one module, one payload, one output in three forms."""

import anywidget
import traitlets

from kvlab.widgets.modules import module_source

__all__ = ["View", "module_source"]


class View(anywidget.AnyWidget):
    """Base of the widgets. A subclass names its view and writes its HTML form.

    The browser gets `payload` once and draws every stop from it: scrubbing asks the kernel for
    nothing. An output carries the live view, the HTML form and a short text, so a notebook without
    a kernel shows the table, and nbval compares the whole payload.
    """

    view = ""  # the name in modules.PARTS
    payload = traitlets.Dict().tag(sync=True)

    def __init_subclass__(cls, **kwargs: object) -> None:
        if "view" in cls.__dict__:  # not in the classes that traitlets derives
            cls._esm = module_source(cls.view)
        super().__init_subclass__(**kwargs)

    def html(self) -> str:
        """The HTML form; see html.py."""
        raise TypeError(f"{type(self).__name__} must say how it looks as HTML: define html()")

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"

    def _repr_mimebundle_(self, **kwargs: object) -> tuple[dict, dict]:
        data, metadata = super()._repr_mimebundle_(**kwargs)
        return {**data, "text/html": self.html(), "text/plain": repr(self)}, metadata
