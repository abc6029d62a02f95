"""Tensors: the decoder, its caches, attention over them, sampling, and the runner of steps."""
