"""`rowlock run`: a coordinator and an agent as processes, and the code that all child processes of
rowlock need.
"""
