"""`python -m millrace` is the `millrace` command."""

from millrace.cli import main

if __name__ == "__main__":
    main()
