"""python -m ddlsim."""

import importlib

if __name__ == "__main__":
    importlib.import_module("ddlsim.cli").main()
