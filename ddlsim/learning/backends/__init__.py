"""Backends that compute waves of jobs: choose.py lists the backends of a device; base.py defines a backend and gives
each job to the first backend that takes it.

row_arithmetic.py runs the jobs on rows alone; training and evaluation go to the first that takes them of native.py
(plans in C++), stacked.py (all nodes of a wave in one model, on a GPU) and one_by_one.py (PyTorch, takes everything).
"""
