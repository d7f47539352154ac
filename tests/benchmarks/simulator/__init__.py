"""A simulated fleet of engines, run by the service's own admission and pace."""
