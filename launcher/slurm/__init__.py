"""What Slurm prints and wants to be told: pure but client, allocation, borrow, session and bad_nodes."""
