"""The view "attention read": which keys one query reads, with what weights, layer by layer."""

from kvlab.widgets.attention_story import Source, attention_payload
from kvlab.widgets.attention_table import attention_html
from kvlab.widgets.growth_words import count
from kvlab.widgets.view import View


class AttentionRead(View):
    """Columns are keys; under each KV head stand the query heads that read it.

    Arguments as for `attention_payload`.
    """

    view = "attention_read"

    def __init__(
        self,
        source: Source,
        request_id: str | None = None,
        layer: int | None = None,
        head: int | None = None,
    ) -> None:
        super().__init__(payload=attention_payload(source, request_id, layer, head))

    def html(self) -> str:
        return attention_html(self.payload)

    def __repr__(self) -> str:
        query, kv = self.payload["heads"]
        stops, layers = len(self.payload["stops"]), len(self.payload["layers"])
        size = f"{count(stops, 'stop')}, {count(layers, 'layer')}"
        heads = f"{count(query, 'query head')} on {count(kv, 'KV head')}"
        return f"AttentionRead({self.payload['title']!r}, {size}, {heads})"


def attention_read(
    source: Source,
    request_id: str | None = None,
    *,
    layer: int | None = None,
    head: int | None = None,
) -> AttentionRead:
    """The view of a trace with attention weights, or of `padded_reads`; section 21.1."""
    return AttentionRead(source, request_id, layer, head)
