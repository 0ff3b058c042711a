"""Progress of builds: lines where there is no terminal, a bar where there is one."""

from __future__ import annotations

import io

from braze.cli.progress import build_progress


class Terminal(io.StringIO):
    """Text that claims to be a terminal."""

    def isatty(self) -> bool:
        return True


def test_lines_elsewhere() -> None:
    out = io.StringIO()
    with build_progress(stream=out) as progress:
        assert progress is not None
        for done in range(101):
            progress("compile", done, 100)
        progress("plan", 1, 1)
    lines = out.getvalue().splitlines()
    # begin and end of a stage, not every step of it
    assert [x.split(" (")[0] for x in lines] == [
        "braze: compile 0/100",
        "braze: compile 100/100",
        "braze: plan 1/1",
    ]


def test_bar_on_a_terminal() -> None:
    out = Terminal()
    with build_progress(stream=out) as progress:
        assert progress is not None
        progress("compile", 0, 4)
        progress("compile", 4, 4)
    assert "compile" in out.getvalue()
    assert "4/4" in out.getvalue()


def test_quiet() -> None:
    with build_progress(quiet=True) as progress:
        assert progress is None
