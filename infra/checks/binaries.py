"""Looks at release binaries: prints their sizes, and fails where one would not run in Lambda or would end at a panic.

Usage: binaries.py FOLDER... , each with a `bootstrap`."""

import pathlib
import re
import sys

# Amazon Linux 2023
GLIBC_MAX = (2, 34)
# A target, told and not enforced: cold start grows with the size.
SIZE_TARGET = 8_000_000


def main():
    faults = []
    for folder in map(pathlib.Path, sys.argv[1:]):
        binary = (folder / "bootstrap").read_bytes()
        versions = {tuple(map(int, found.groups())) for found in re.finditer(rb"GLIBC_(\d+)\.(\d+)", binary)}
        needed = max(versions)
        size = len(binary)
        late = " MORE THAN THE TARGET" if size > SIZE_TARGET else ""
        print(f"{folder.name:<16} {size / 1e6:5.2f} MB, glibc {needed[0]}.{needed[1]}{late}")
        if binary[:4] != b"\x7fELF":
            faults.append(f"{folder.name} is no ELF binary")
        if needed > GLIBC_MAX:
            faults.append(f"{folder.name} needs glibc {needed[0]}.{needed[1]}")
        # A text of the runtime that unwinds; the one that aborts does not have it.
        if b"Rust panics must be rethrown" not in binary:
            faults.append(f"{folder.name} does not unwind: a panic would end it unreported")
    for fault in faults:
        print(f"error: {fault}", file=sys.stderr)
    sys.exit(1 if faults else 0)


main()
