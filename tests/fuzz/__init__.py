"""Every reader of foreign text on damaged input: nothing may escape but the errors that its docstring names.

python -m tests.fuzz [TARGET] [--seconds 3600]      guided by coverage; needs `pip install atheris`
pytest tests/fuzz                                   seconds of it, without
"""
