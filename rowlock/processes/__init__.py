"""`rowlock run`: a coordinator and an agent as processes, and what any child process of rowlock's needs."""
