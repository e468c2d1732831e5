"""``python -m simbookie.cli`` is ``bk-sim``."""

from simbookie.cli import main

if __name__ == "__main__":
    main()
