"""What nothing that is kept names any more is found, planned and deleted. Start at `planner`."""
