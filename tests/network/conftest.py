from hypothesis import settings

# pytest --hypothesis-profile=ci: at least 2,000 random event sequences for every property of the flows.
settings.register_profile("default", max_examples=150, deadline=None, derandomize=True)
settings.register_profile("ci", max_examples=2_000, deadline=None)
settings.load_profile("default")
