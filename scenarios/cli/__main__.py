"""``python -m scenarios.cli`` is ``bk-chaos``."""

from scenarios.cli import main

if __name__ == "__main__":
    main()
