"""The process that times kernels: see braze.codegen.cuda.timer."""

from __future__ import annotations

import os
import pickle
import sys

from braze.codegen.cuda.measure import CudaWorkload
from braze.codegen.cuda.timer import Open, Reply


def main() -> None:
    """Answer requests until standard input ends. What libraries print goes to standard error."""
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    work: CudaWorkload | None = None
    while True:
        try:
            request = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        try:
            if isinstance(request, Open):
                work = None  # its buffers are freed before others are made
                work = CudaWorkload(request.kernel, request.sizes)
                reply = Reply()
            else:
                assert work is not None, "nothing is open"
                reply = Reply(work.seconds(request.compiled, request.give_up_above))
        except MemoryError:
            reply = Reply(no_memory=True)
        except Exception as e:  # the context may be spoiled: whoever asks ends this process
            reply = Reply(error=f"{type(e).__name__}: {e}"[:500])
        pickle.dump(reply, replies)
        replies.flush()


if __name__ == "__main__":
    main()
