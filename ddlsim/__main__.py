"""python -m ddlsim."""

from ddlsim.cli import main

if __name__ == "__main__":
    main()
