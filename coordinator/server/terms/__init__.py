"""One term of this coordinator as the owner: its state, its commands; and what lasts beyond it: who leads, the streams of agents."""
