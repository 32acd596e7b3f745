"""How waves of jobs are computed: choose.py lists the backends of a device, base.py says what a backend
is and gives each job to the first that takes it.

row_arithmetic.py does what needs rows alone; training and evaluation go to the first that takes them of native.py
(plans in C++), stacked.py (all nodes of a wave in one model, on a GPU) and one_by_one.py (PyTorch, takes everything).
"""
