#!/usr/bin/env python3
"""Checks that some binaries contain no code of some libraries:

    check_links.py NM --libraries A.a ... --absent BINARY ... --present BINARY ...

None of the libraries' symbols may be in the first binaries. Some must be in the second, which proves that the check
works. Weak symbols do not count: they are inline functions and templates of headers, which any library may
instantiate."""

import argparse
import subprocess
import sys


def symbols(nm, path):
    """Name -> whether it is weak, for the symbols that a library or a binary defines."""
    lines = subprocess.run([nm, "--defined-only", "--format=posix", path], check=True, capture_output=True, text=True)
    fields = [line.split() for line in lines.stdout.splitlines()]
    return {f[0]: f[1] in "WVu" for f in fields if len(f) >= 2 and f[1] in "TDBRWVu"}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("nm")
    parser.add_argument("--libraries", nargs="+", required=True)
    parser.add_argument("--absent", nargs="+", required=True)
    parser.add_argument("--present", nargs="+", required=True)
    args = parser.parse_args()
    library_of = {name: library for library in args.libraries
                  for name, weak in symbols(args.nm, library).items() if not weak}
    failed = False
    for binary in args.absent + args.present:
        found = sorted(library_of.keys() & symbols(args.nm, binary).keys())
        print(f"{binary}: {len(found)} of {len(library_of)} symbols")
        if binary in args.absent:
            failed |= bool(found)
            for name in found[:10]:
                print(f"  {name} of {library_of[name]}")
        else:
            failed |= not found
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
