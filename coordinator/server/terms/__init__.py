"""One term of this coordinator as the leader (its state and commands), and the parts that outlive a
term: the known leader and the agents' streams.
"""
