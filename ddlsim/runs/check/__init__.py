"""The written contracts of parts from outside, tried out by `ddlsim check`."""
