"""Stacked tensors: each represents one tensor of each of N models, so that plain autograd trains all of them in one
pass.
"""
