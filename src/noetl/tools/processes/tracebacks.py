"""An exception of a playbook's code, as its author should see it: the playbook's own file and lines.

Runs inside a code process. Frames of the process's own program are left out, those of libraries reduced
to the one that raised; the text of a line comes from the code at hand, never from the disk.
"""

from __future__ import annotations

from types import TracebackType

MAX_MESSAGE = 1000
MAX_FRAMES = 20
MAX_CHAIN = 5
HERE = __file__.rpartition("/")[0]


def summary(error: BaseException) -> str:
    """`ExceptionType: text`, cut where it gets long."""
    name = type(error).__name__
    try:
        text = str(error)
    except Exception as failure:  # noqa: BLE001 - whatever a user's __str__ raises, the error is reported
        text = f"<its text cannot be shown: {type(failure).__name__}>"
    line = f"{name}: {text}" if text else name
    line = line.encode("utf-8", "backslashreplace").decode()
    return line if len(line) <= MAX_MESSAGE else line[: MAX_MESSAGE - 1] + "…"


def describe(error: BaseException, file: str, first_line: int, code: str) -> str:
    """The frames of the code, outermost first, then the exception; those that caused it come before."""
    source = code.splitlines()
    parts: list[str] = []
    link: BaseException | None = error
    joint = ""
    while link is not None and len(parts) < MAX_CHAIN:
        parts.insert(0, _one(link, file, first_line, source) + joint)
        if link.__cause__ is not None:
            link, joint = link.__cause__, "\n\nThis was the direct cause of the following:\n"
        elif link.__context__ is not None and not link.__suppress_context__:
            link, joint = link.__context__, "\n\nWhile this was handled, the following happened:\n"
        else:
            link = None
    return "\n".join(parts)


def _one(error: BaseException, file: str, first_line: int, source: list[str]) -> str:
    lines = ["Traceback (most recent call last):"]
    frames = _frames(error.__traceback__, file)
    if len(frames) > MAX_FRAMES:
        left_out = len(frames) - MAX_FRAMES
        frames = [*frames[: MAX_FRAMES // 2], ("", left_out, ""), *frames[-MAX_FRAMES // 2 :]]
    for name, line, function in frames:
        if not name:
            lines.append(f"  … {line} more")
            continue
        lines.append(f'  File "{name}", line {line}, in {function}')
        offset = line - first_line
        if name == file and 0 <= offset < len(source) and source[offset].strip():
            lines.append(f"    {source[offset].strip()}")
    if isinstance(error, SyntaxError) and error.filename == file and error.lineno is not None:
        lines.append(f'  File "{file}", line {error.lineno}')
        offset = error.lineno - first_line
        if 0 <= offset < len(source):
            lines.append(f"    {source[offset].strip()}")
    if len(lines) == 1:
        lines.clear()
    return "\n".join((*lines, summary(error)))


def _frames(trace: TracebackType | None, file: str) -> list[tuple[str, int, str]]:
    """File, line and function of each frame of the code; and of the last one, if it lies in a library."""
    frames: list[tuple[str, int, str]] = []
    last: tuple[str, int, str] | None = None
    while trace is not None:
        where = trace.tb_frame.f_code
        last = (where.co_filename, trace.tb_lineno, where.co_name)
        if where.co_filename == file:
            frames.append(last)
        trace = trace.tb_next
    if last is not None and last[0] != file and not last[0].startswith(HERE):
        frames.append(last)
    return frames
