"""How much memory processes hold."""

from __future__ import annotations

from pathlib import Path


def resident_mib(pid: int) -> float:
    """Give the resident memory of a process."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:")) / 1024
