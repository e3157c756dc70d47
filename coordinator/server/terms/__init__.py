"""One term of this coordinator as the leader (its state and commands), and what outlives it: who leads,
the agents' streams.
"""
