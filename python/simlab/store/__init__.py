"""What every step shares: files, jobs, results, the process and the terminal."""
