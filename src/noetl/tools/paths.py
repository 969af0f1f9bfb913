"""Paths that a playbook names: they lie under the execution's folder, whatever they are written like."""

from __future__ import annotations

from pathlib import Path


class PathRefusedError(Exception):
    """A path that leads out of its folder."""


def under(folder: Path, written: str) -> Path:
    """The path with every link followed; it is judged where it really leads."""
    if "\x00" in written:
        raise PathRefusedError("the path is not a path")
    root = folder.resolve()
    path = (root / written).resolve()
    if not path.is_relative_to(root):
        raise PathRefusedError("the path leads out of the execution's folder")
    return path
