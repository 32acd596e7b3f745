"""How waves of jobs are computed: base.py decides which backend takes a job, one file for each backend.

row_arithmetic.py does what needs rows alone; training and evaluation go to the first that takes them of native.py
(plans in C++), stacked.py (all nodes of a wave in one model, on a GPU) and one_by_one.py (PyTorch, takes everything).
"""
