"""``python -m bkclient.cli`` is ``bk``."""

from bkclient.cli import main

if __name__ == "__main__":
    main()
