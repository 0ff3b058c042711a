"""A process that compiles Triton kernels: see braze.codegen.cuda.triton.pool."""

from __future__ import annotations

import json
import os
import sys

from braze.codegen.cuda.triton.cubin import compile_cubin
from braze.codegen.cuda.triton.nests import TritonSource
from braze.codegen.cuda.triton.pool import answer
from braze.core.dtypes import BY_NAME
from braze.core.errors import CompileError
from braze.fusion.kernel import TensorMap


def main() -> None:
    """Answer requests until standard input ends. What compilers print goes to standard error."""
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        m = json.loads(line)
        pointers = tuple((str(name), str(kind)) for name, kind in m["pointers"])
        sizes = tuple(range(m["sizes"]))  # only their number matters here
        maps = tuple(
            TensorMap(0, BY_NAME[dtype], (), (), tuple(box), swizzle)
            for dtype, box, swizzle in m["maps"]
        )
        source = TritonSource(
            m["entry"], m["text"], pointers, sizes, 1, m["warps"], m["stages"], maps=maps,
            registers=m["registers"],
        )  # fmt: skip
        try:
            reply = answer(compile_cubin(source, m["capability"]))
        except CompileError as e:
            reply = json.dumps({"error": str(e)})
        except Exception as e:  # whatever a compiler throws refuses this kernel alone
            reply = json.dumps({"error": f"{type(e).__name__}: {e}"[:500]})
        replies.write(reply + "\n")
        replies.flush()


if __name__ == "__main__":
    main()
