"""``python -m spark_analysis.cli`` is ``bk-verify``."""

from spark_analysis.cli import main

if __name__ == "__main__":
    main()
