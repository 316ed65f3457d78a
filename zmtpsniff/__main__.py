"""``python -m zmtpsniff``."""

from zmtpsniff.cli.main import main

if __name__ == "__main__":
    main()
