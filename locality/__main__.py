"""`python -m locality`, and the command `locality`."""

from locality.errors import needing


def main() -> None:
    """Run the command line, or say how to install it."""
    try:
        with needing("the command line"):
            from locality.cli import main as run
    except ImportError as error:
        raise SystemExit(f"locality: {error}") from None
    run()


if __name__ == "__main__":
    main()
