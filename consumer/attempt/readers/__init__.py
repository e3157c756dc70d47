"""Readers of a unit's topic: records become row changes, or something that all lanes wait for, and what is missing is read first."""
