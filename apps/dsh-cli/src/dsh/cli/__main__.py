"""`python -m dsh.cli` is `dsh`."""

import sys

from dsh.cli import main

if __name__ == "__main__":
    sys.exit(main())
