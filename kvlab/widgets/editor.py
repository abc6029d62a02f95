"""The base of the live editors: the browser sends inputs, Python computes, the browser shows.

    browser                                kernel
    inputs, sequence number        ->      compute(**inputs)
    shows it, sends newest inputs  <-      result, the same number

While an update is under way the browser keeps only the newest inputs, so a long drag never fills
the kernel's queue. An exception stands in the widget beside the last good picture; `check()`
raises it again in a later cell, so that a run without a reader fails as well. An update that is
interrupted is answered too: the browser sends nothing while it waits for an answer.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from html import escape

import traitlets

from kvlab.widgets.controls import Control, spec
from kvlab.widgets.html import html_form, table
from kvlab.widgets.nested import nested_content
from kvlab.widgets.view import View

LOG = logging.getLogger("kvlab.widgets")
Lines = Sequence[Sequence[str]]


class LiveEditor(View):
    """Controls, lines of text and a view, all made by one pure function.

    compute(**inputs) returns {"lines": [[label, text, kind], ...], "view": payload or None};
    kind is "answer", "notice" or "plain". The same inputs give the same result. The view is one of
    those in nested.py. The first computation happens at once and raises in the cell that makes the
    editor. presets: by name, values of some controls that a reader can set with one choice; the
    name is shown for as long as the controls have these values.
    """

    view = "editor"
    result = traitlets.Dict().tag(sync=True)

    def __init__(
        self,
        compute: Callable[..., dict],
        controls: Sequence[Control],
        title: str,
        presets: Mapping[str, Mapping[str, object]] | None = None,
        own: str | None = None,
    ) -> None:
        """own: what stands in place of a preset's name where the inputs are no preset's.

        Raises ValueError where a value, of a control or a preset, does not fit its control.
        """
        self.compute = compute
        self.controls = {control.name: control for control in controls}
        self.presets = {name: self._preset(name, given) for name, given in (presets or {}).items()}
        self.error: Exception | None = None
        self.updates = 0  # computations since the first one
        inputs = {control.name: control.check(control.value) for control in controls}
        first = {
            **self._computed(inputs),
            "inputs": inputs,
            "error": None,
            "updates": 0,
            "answers": None,
        }
        payload = {"view": self.view, "title": title, "controls": [spec(c) for c in controls]}
        if self.presets:
            payload["presets"] = [{"name": n, "inputs": given} for n, given in self.presets.items()]
        if own is not None:
            payload["own"] = own
        super().__init__(payload=payload, result=first)
        self.on_msg(self._received)

    @property
    def inputs(self) -> dict:
        """The inputs of the last good result."""
        return dict(self.result["inputs"])

    def set(self, **inputs: object) -> None:
        """Change inputs from a cell; the widget follows. Errors are kept as for the browser's."""
        self._update({**self.inputs, **inputs}, None)

    def check(self) -> None:
        """Raise the error of the last update, if it had one."""
        if self.error is not None:
            raise self.error

    def _received(self, _: object, content: object, buffers: object) -> None:
        """A message of a browser: {"kind": "inputs", "inputs": {...}, "from": [view, number]}."""
        if isinstance(content, Mapping) and content.get("kind") == "inputs":
            self._update(content.get("inputs"), content.get("from"))

    def _update(self, inputs: object, answers: object) -> None:
        """Compute and send, or keep the last good result and say what went wrong."""
        self.updates += 1
        news: dict = {"updates": self.updates, "answers": answers, "error": None}
        try:
            checked = self._checked(inputs)
            news |= {**self._computed(checked), "inputs": checked}
            self.error = None
        except Exception as error:  # whatever compute raises is the reader's to see
            if answers is not None:  # nobody else sees an exception of a browser's message
                LOG.exception("the editor %r could not update", self.payload["title"])
            self.error = error
            news["error"] = f"{type(error).__name__}: {error}"
        except BaseException:  # the reader interrupts the kernel, and may go on afterwards
            what = "interrupted; change an input to compute again"
            self.error = RuntimeError(f"the last update of {self.payload['title']!r} was {what}")
            news["error"] = what
            raise
        finally:
            self.result = {**self.result, **news}

    def _checked(self, inputs: object) -> dict:
        if not isinstance(inputs, Mapping) or inputs.keys() != self.controls.keys():
            raise ValueError(
                f"inputs {inputs!r} do not match the controls {', '.join(self.controls)}"
            )
        return {name: control.check(inputs[name]) for name, control in self.controls.items()}

    def _preset(self, preset: str, given: Mapping[str, object]) -> dict:
        if unknown := given.keys() - self.controls.keys():
            raise ValueError(
                f"preset {preset!r} sets {', '.join(sorted(unknown))}; "
                f"the controls are {', '.join(self.controls)}"
            )
        return {name: self.controls[name].check(value) for name, value in given.items()}

    def _computed(self, inputs: Mapping) -> dict:
        found = self.compute(**inputs)
        return {"lines": [list(line) for line in found.get("lines", ())], "view": found.get("view")}

    # ---- the forms without a kernel

    def html(self) -> str:
        title, result = self.payload["title"], self.result
        rows = [(c.label, result["inputs"][name]) for name, c in self.controls.items()]
        rows += [(label, text) for label, text, _ in result["lines"]]
        if result["error"]:
            rows.append(("error", result["error"]))
        parts = [f"<p><strong>{escape(title)}</strong></p>", table(title, ("", "value"), rows)]
        if result["view"]:
            parts.append(nested_content(result["view"]))
        return html_form({**self.payload, "result": self._stable_result()}, "\n".join(parts))

    def _stable_result(self) -> dict:
        return {**self.result, "answers": None, "updates": 0}

    def __repr__(self) -> str:
        state = "error" if self.error else "ok"
        return (
            f"{type(self).__name__}({self.payload['title']!r}, {', '.join(self.controls)}: {state})"
        )
