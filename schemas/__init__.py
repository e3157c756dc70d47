"""The parts that all packages share: event envelope, table model, values on the wire, and configuration."""
