"""CPU, memory, disks, limits and what earlier jobs left."""
