"""What the server's tests share: prompts, and how to see that nothing is left."""

import time

from kvlab import LLM, tiny
from kvlab.serve import Server

PROMPT = tiny.prompt("Ada likes pears. Tom likes tea.", "What does Ada like?")
LONG = {"prompt": PROMPT, "max_tokens": 900, "ignore_eos": True, "temperature": 0}


def settled(server: Server) -> tuple[int, int]:
    """Requests that the engine has, and blocks that are held, once aborts have arrived."""

    def held(llm: LLM) -> tuple[int, int]:
        pool = llm.engine.scheduler.manager.pool
        return len(llm.engine.requests), pool.num_blocks - pool.num_free_blocks

    for _ in range(400):
        found = server.call(held)
        if found == (0, 0):
            break
        time.sleep(0.05)
    return found
