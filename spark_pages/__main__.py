"""``python -m spark_pages`` is the command ``spark-pages``."""

from spark_pages.cli import main

if __name__ == "__main__":
    main()
