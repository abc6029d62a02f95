"""The models that the timer offers: random weights, the embedded model, or the reader's own."""

from kvlab import tiny
from kvlab.llm import LLM
from kvlab.measure import devices
from kvlab.measure.phase_steps import check_model
from kvlab.measure.random_decoder import random_50m
from kvlab.tensors.checkpoint import load_model
from kvlab.tensors.model import Decoder
from kvlab.widgets.timer_inputs import RANDOM, TINY


class TimerModels:
    """Makes a model when it is first measured, and keeps the one that was used last."""

    def __init__(self, given: Decoder | LLM | None) -> None:
        """Raises ValueError for what is no model or has no weights."""
        self.given = given.model if isinstance(given, LLM) else given
        self.names = [RANDOM, TINY]
        if self.given is not None:
            check_model(self.given)
            self.names.insert(0, f"yours, {self.given.num_parameters:,} weights")
        self._last: tuple[tuple[str, str], Decoder] | None = None

    def get(self, name: str, device: str) -> Decoder:
        """In the format that suits the device; the reader's own stays as it is where it is."""
        if self._last is not None and self._last[0] == (name, device):
            return self._last[1]
        self._last = None  # its memory first
        model = self._make(name, device)
        self._last = ((name, device), model)
        return model

    def _make(self, name: str, device: str) -> Decoder:
        place = devices.checked_device(device)
        dtype = devices.checked_dtype(None, place)
        if name == RANDOM:
            return random_50m(dtype, place)
        if name == TINY:
            return load_model(tiny.FOLDER, dtype, place)
        same = self.given.device.type == place.type
        return self.given if same else self.given.converted(dtype, place)
