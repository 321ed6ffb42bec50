# SPDX-License-Identifier: GPL-2.0-only
"""Read TOML files. Not in kit.process, which is for python 3.9 too: that has no tomllib."""

import tomllib

from kit.process import Error


def read(path):
    """Give the tables of the TOML file `path`; Error, with the path, if it cannot be read or is not TOML."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise Error(f"{path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise Error(f"{path}: not TOML: {error}") from None
