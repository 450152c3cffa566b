"""Where a text of a launch file is read, and what it becomes there: on which host, by a shell or by nobody."""
