"""Errors, tables of named parts, random numbers, input files and processes, which all other packages use."""
