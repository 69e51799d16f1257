"""`python -m windtunnel` is the same program as `windtunnel`."""

from windtunnel.cli.main import main

__all__: list[str] = []

if __name__ == "__main__":
    main()
