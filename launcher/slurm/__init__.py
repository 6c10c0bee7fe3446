"""What Slurm prints and wants to be told. Everything here is pure but client.py, submit.py and allocation.py."""
