"""What the job was doing: phases, activity, outcome."""
