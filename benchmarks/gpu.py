"""Kernels and engine on a GPU machine: correctness, decode, prefill, tokens a second.

    python benchmarks/gpu.py --out benchmarks/results/gpu.json          under four minutes
    python benchmarks/gpu.py --dry                                      tiny, on a CPU

Needs torch 2.11 or newer with its Triton, a CUDA device, and, for the comparison, transformers.
No Jupyter package. The parts are in kvlab/measure/gpu_*.py; what is compared, and what is expected,
stands in benchmarks/NOTES.md.
"""

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # a clone that is not installed

from kvlab import triton_mode

triton_mode.choose()  # before torch.compile or anything else imports triton

from kvlab.measure.gpu_run import main  # noqa: E402

if __name__ == "__main__":
    began = time.perf_counter()
    code = main()
    print(f"\n{time.perf_counter() - began:.0f} s in all")
    sys.exit(code)
